"""The witness table of a plan: counted, printed, and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table

from ..report import percent
from .generic_mutants import CLASSES
from .witness_table import Cell, Key

REASONS: Mapping[str, str] = {
    "no effect": "the mutant changes no bit of any result: the operator does not depend on it",
    "allowed": "the mutant's results are within the error that the operator's clauses allow",
    "no such call": "the domain of the operator has no such call in this dtype",
}
"""Why a class of an operator and dtype has no witness, by the names of these reasons."""


@dataclass(frozen=True)
class OperatorTable:
    """The cells of an operator, by dtype and class."""

    op: str
    cells: Mapping[Key, Cell]

    def without_witness(self, reason: str) -> dict[str, list[str]]:
        """The dtypes that lack one for a reason, by class."""
        results = defaultdict[str, list[str]](list)
        for (dtype, name), cell in self.cells.items():
            if cell.reason == reason:
                results[name].append(dtype)
        return dict(results)

    def as_json(self) -> dict[str, Any]:
        dtypes = {reason: self.without_witness(reason) for reason in REASONS}
        witnessed = sum(bool(cell.witness) for cell in self.cells.values())
        return {"witnessed": witnessed, **{reason: classes for reason, classes in dtypes.items() if classes}}


def as_json(tables: Sequence[OperatorTable], about: Mapping[str, Any]) -> dict[str, Any]:
    """The whole table, with what it is ``about``: tier and seed."""
    return {
        **about,
        "torch": torch.__version__,
        "classes": {c.name: c.mistake for c in CLASSES.values()},
        "reasons": dict(REASONS),
        "operators": {table.op: table.as_json() for table in tables},
    }


def by_class(tables: Sequence[OperatorTable]) -> Table:
    """A row for each class: of how many operators and dtypes it has a witness, and why of the others it has none."""
    counts = {name: Counter[str]() for name in CLASSES}
    for table in tables:
        for (_, name), cell in table.cells.items():
            counts[name][cell.reason] += 1
    result = Table("class", "a backend that", "witnessed", *REASONS, title="Witnesses", title_justify="left")
    for name, count in counts.items():
        if count:
            figures = [str(count[reason]) for reason in REASONS]
            result.add_row(name, CLASSES[name].mistake, percent(count[""], count.total()), *figures)
    return result
