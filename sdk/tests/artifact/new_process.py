"""Compiling as a new process would, and the graphs that a stage of the compiler gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import keel
from keel import compiler


def run(fn: Callable[..., Any], *args: Any, backends: Any = ("cpp", "eager"), **options: Any) -> Any:
    """Compiles ``fn`` as a new process would, and calls it."""
    torch.compiler.reset()
    return keel.compile(fn, backends=list(backends), **options)(*args)


def kinds_of(monkeypatch: pytest.MonkeyPatch, stage: str) -> list[str]:
    """A list to which the kind of each captured graph is added that the function ``stage`` of the compiler gets."""
    kinds: list[str] = []
    real = getattr(compiler, stage)

    def noting(captured: Any, *more: Any) -> Any:
        kinds.append(captured.kind)
        return real(captured, *more)

    monkeypatch.setattr(compiler, stage, noting)
    return kinds
