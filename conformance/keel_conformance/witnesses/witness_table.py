"""Which cases witness each class of values and sizes, for each operator and dtype.

A case is a witness of a class only if a backend that mistreats the class fails it: the results of the generic mutant
are judged as a backend's are. What a case merely contains does not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keel.opset import Op

from ..cases import trivial
from ..cases.case import Case
from ..cases.domain import DTYPES as NAMED
from ..cases.inputs import draw_inputs
from ..num_threads import threads
from ..oracles.error_rules import flat
from ..oracles.judge import judge, target_of
from ..oracles.sorting_properties import same_bits
from .generic_mutants import CLASSES, DTYPES, Execution, WitnessClass

KEYS = tuple(name for name, dtype in NAMED.items() if dtype in DTYPES)
"""The names of the dtypes in which every class is to be shown."""
TRIES = 24
"""Cases with something of a class after which no other one is tried: the operator does not depend on it."""
Key = tuple[str, str]
"""A dtype and a class, by their names."""


@dataclass(frozen=True)
class Cell:
    """What cases show of a class in a dtype. ``witness`` is the first case that the generic mutant fails. The mutant
    changes no bit of the results of ``unchanged`` cases, and the oracles allow what it computes of ``allowed`` ones.
    """

    witness: str = ""
    unchanged: int = 0
    allowed: int = 0

    @property
    def tries(self) -> int:
        return self.unchanged + self.allowed

    @property
    def reason(self) -> str:
        """Why there is no witness."""
        if self.witness:
            return ""
        if self.allowed:
            return "allowed"
        return "no effect" if self.unchanged else "no such call"


def is_judged(op: Op) -> bool:
    """Whether the values of an operator's results are decided, so that a mutant of it can be wrong."""
    return trivial.is_deterministic(op)


def keys_of(dtypes: Iterable[str]) -> Iterator[Key]:
    """The cells of an operator that has these dtypes."""
    for dtype in dtypes:
        if dtype in KEYS:
            yield from ((dtype, c.name) for c in CLASSES.values() if NAMED[dtype] in c.dtypes)


def cells_of(op: Op, cases: Iterable[Case], dtypes: Iterable[str]) -> dict[Key, Cell]:
    """The table of one operator, by its cases.  Small ones come first, since the judgment on many elements is slow."""
    cells = dict.fromkeys(keys_of(dtypes), Cell())
    for case in sorted((c for c in cases if c.kind == "op" and c.dtype in KEYS), key=_size):
        missing = missing_of(cells, case.dtype)
        if missing and (call := execution(op, case)) is not None:
            cells |= shown_by(case, call, missing)
    return cells


def _size(case: Case) -> int:
    """How many elements the arguments have."""
    with threads(1):
        return sum(x.numel() for x in draw_inputs(case, 0).tensors)


def missing_of(cells: Mapping[Key, Cell], dtype: str) -> dict[Key, Cell]:
    """The cells of a dtype for which a witness is looked for."""
    return {k: c for k, c in cells.items() if k[0] == dtype and not c.witness and c.tries < TRIES}


def shown_by(case: Case, call: Execution, missing: Mapping[Key, Cell]) -> dict[Key, Cell]:
    """What the case adds to cells without a witness, by its first call."""
    with threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {key: _with(cell, case, call, CLASSES[key[1]]) for key, cell in missing.items()}


def execution(op: Op, case: Case) -> Execution | None:
    """The first call of the case; None if eager PyTorch refuses it."""
    with threads(1), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            inputs, target = draw_inputs(case, 0), target_of(case.op, case.overload)
            return Execution(op, target, NAMED[case.dtype], inputs, flat(target(*inputs.args, **inputs.kwargs)))
        except Exception:  # of whatever kind: the case is judged by other means
            return None


def _with(cell: Cell, case: Case, call: Execution, witnessed: WitnessClass) -> Cell:
    try:
        results = witnessed.wrong(call)
    except Exception:  # the mutant ends with an error where PyTorch has a result
        return Cell(case.id)
    if results is None:
        return cell
    if len(results) == len(call.right) and all(map(_same, results, call.right)):
        return Cell("", cell.unchanged + 1, cell.allowed)
    if judge(case, call.inputs, results).status == "fail":
        return Cell(case.id)
    return Cell("", cell.unchanged, cell.allowed + 1)


def _same(x: Any, y: Any) -> bool:
    """Whether results are equal bit by bit."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return repr(x) == repr(y)
    if (x.dtype, x.shape) != (y.dtype, y.shape):
        return False
    if x.dtype.is_floating_point:
        x, y = x.double(), y.double()  # PyTorch neither compares nor asks for signs in float8
    return bool(same_bits(x, y).all())
