"""Backends that are wrong on purpose, and such as are right in other ways: what the suite itself is tried on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType

from . import (
    benign,
    controls,
    digits,
    loops,
    lowered,
    lowered_moves,
    movement,
    norms,
    passes,
    pointwise,
    reductions,
    rewrites,
    system,
    windows,
)
from .mutant import Mutant


def _of(modules: Iterable[ModuleType]) -> Mapping[str, Mutant]:
    found = [
        m
        for module in modules
        for m in vars(module).values()
        if isinstance(m, Mutant) and m.subject.startswith(f"{module.__name__}:")
    ]
    return {m.name if m.level != "loop" else f"loop-{m.name}": m for m in found}


MUTANTS: Mapping[str, Mutant] = _of(
    (pointwise, reductions, movement, windows, lowered, lowered_moves, system, passes, rewrites, digits, loops)
)
CONTROLS: Mapping[str, Mutant] = _of((controls,))
BENIGN: Mapping[str, Mutant] = _of((benign, norms))

__all__ = ["BENIGN", "CONTROLS", "MUTANTS", "Mutant"]
