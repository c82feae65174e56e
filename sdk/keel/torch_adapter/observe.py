"""Logs the operator calls that a function makes when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LoggedCall = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any], Any]
"""An overload, its arguments, and its result."""


class _Ear(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard: list[LoggedCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.heard.append((func, tuple(args), dict(kwargs or {}), result))
        return result


def observed(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[LoggedCall]:
    """Runs ``fn`` and lists the overloads that it called, in order, below autograd."""
    ear = _Ear()
    with torch.no_grad(), ear:
        fn(*args, **kwargs)
    return ear.heard
