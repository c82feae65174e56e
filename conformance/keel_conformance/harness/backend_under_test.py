"""The backend that is judged, by a text from which any process finds it: an installed one, a value, a foreign one."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any

import torch

import keel
from keel import Backend, KeelError
from keel.plugin import Arithmetic
from keel.testing import claims_of
from keel_foreign import foreign

from ..devices import declared_facts

GROUP = "keel.backends"


@dataclass(frozen=True)
class BackendUnderTest:
    """``text`` is what ``subject`` was asked for."""

    text: str
    backend: Backend

    @property
    def name(self) -> str:
        return self.backend.name

    @property
    def device(self) -> str:
        """Where its tensors live: the host's memory, for a backend that works on any device."""
        return "cpu" if self.backend.device == "*" else self.backend.device

    @property
    def arithmetic(self) -> Arithmetic:
        """What the backend declares of its arithmetic, or else what its device does."""
        own = self.backend.arithmetic
        return own if own.sentences() else declared_facts(self.device)

    @property
    def with_eager(self) -> list[str | Backend]:
        """It first, and what it does not take by eager PyTorch."""
        return [self.backend] if self.backend.last_resort else [self.backend, "eager"]


@cache
def load_backend(text: str) -> BackendUnderTest:
    """The backend that ``text`` names.

    That is an installed Keel backend; ``module:attribute``, a Backend; or a backend of ``torch.compile``. Raises
    KeelError: unknown-backend with the nearest names, and what ``keel.testing.find`` raises of one that is installed.
    """
    if ":" in text:
        return BackendUnderTest(text, _load_value(text))
    installed = set(claims_of(GROUP))
    if text in installed:
        return BackendUnderTest(text, keel.testing.find(text))
    registered = set(torch.compiler.list_backends(exclude_tags=())) - {"keel"}
    if text in registered:
        return BackendUnderTest(text, keel.testing.resolve([foreign(text)], strict=True)[0])
    near = get_close_matches(text, sorted(installed | registered), n=3)
    raise KeelError(
        "unknown-backend",
        f"there is no backend {text!r} to judge.",
        {"of Keel": ", ".join(sorted(installed)), "of torch.compile": ", ".join(sorted(registered))},
        do=f"Did you mean {' or '.join(map(repr, near))}?"
        if near
        else "Install the package that carries it, or name a Backend value as module:attribute.",
    )


def _load_value(text: str) -> Backend:
    module, _, path = text.partition(":")
    try:
        holder: Any = import_module(module)
    except ImportError as raised:
        raise KeelError(
            "unknown-backend",
            f"there is no backend {text!r} to judge.",
            {module: str(raised)},
            do="Name a Backend value as module:attribute, in a module that Python can import.",
        ) from raised
    for name in path.split("."):
        if not hasattr(holder, name):
            near = get_close_matches(name, dir(holder), n=3)
            raise KeelError(
                "unknown-backend",
                f"there is no backend {text!r} to judge.",
                {module: f"It has no attribute {name!r}."},
                do=f"Did you mean {' or '.join(map(repr, near))}?" if near else "Name a Backend value of that module.",
            )
        holder = getattr(holder, name)
    return keel.testing.resolve([holder], strict=True)[0]
