"""Accumulators: the variables a Reduce or a Scan folds into, as scalars or as one per lane.

A sum of float is accumulated in float for at most 32 steps and then added to a double. A sum of double carries its
rounding error along. A monoid without a text in the table becomes a function of its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from keel.loops import MONOIDS, SCALARS, Reduce, Scan
from keel_cpp.op_table import DTYPES, REDUCTIONS, STORED, applied, literal, loaded


@dataclass(frozen=True)
class Variable:
    """A variable of a fold's accumulator: its type in C++, its name, and the text of its first value."""

    ctype: str
    name: str
    start: str


@dataclass(frozen=True)
class Fold:
    """The accumulator of one statement. In its methods, ``at`` is "" for a scalar and "[l]" for lane l. ``short``:
    there are so few values that a sum is accumulated in its own precision. ``brief``: each of the L lanes has so few
    values that a partial sum is never flushed.
    """

    stmt: Reduce | Scan
    short: bool = False
    brief: bool = False

    @property
    def number(self) -> int:
        return self.stmt.results[0]

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return self.stmt.dtypes

    @property
    def parted(self) -> bool:
        """True if lanes accumulate into a partial sum, the ``part``, that is flushed into the sum every 32 steps."""
        return self.stmt.monoid == "sum" and self.dtypes[0].is_floating_point and not self.short

    @property
    def careful(self) -> bool:
        """True for a sum of double that carries its rounding error."""
        return self.parted and self.dtypes[0] == torch.float64

    @property
    def by_steps(self) -> bool:
        return self.stmt.monoid not in REDUCTIONS

    @cached_property
    def starts(self) -> tuple[str, ...]:
        """The identity."""
        if self.by_steps:
            values = MONOIDS[self.stmt.monoid].identity(self.dtypes)
            return tuple(literal(v, d) for v, d in zip(values, self.dtypes, strict=True))
        return (REDUCTIONS[self.stmt.monoid][0].format(dtype=STORED[self.dtypes[0]]),)

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        if self.parted and self.brief:
            return (Variable(DTYPES[self.dtypes[0]], f"part{self.number}", self.starts[0]),)
        if self.parted:
            names = ("sum", "err") if self.careful else ("sum",)
            return tuple(Variable("double", f"{name}{self.number}", "0.") for name in names)
        return tuple(
            Variable(STORED[d], f"acc{r}", start)
            for r, d, start in zip(self.stmt.results, self.dtypes, self.starts, strict=True)
        )

    # -- declaring --------------------------------------------------------------------------------------------------

    def declare(self, lanes: str = "") -> list[str]:
        """Declares the variables, with the identity as value. ``lanes`` is the number of lanes, "" for scalars."""
        return [_declared(v, lanes) for v in self.variables]

    def declare_part(self, lanes: str) -> str:
        return _declared(Variable(DTYPES[self.dtypes[0]], f"part{self.number}", self.starts[0]), lanes)

    def function(self) -> list[str]:
        """The function ``name(state..., more...)`` that combines two states, for a monoid that is rendered from its
        steps.
        """
        if not self.by_steps:
            return []
        monoid = MONOIDS[self.stmt.monoid]
        types = [DTYPES[d] for d in self.dtypes]
        n = len(types)
        params = [f"{t}& x{k}" for k, t in enumerate(types)] + [f"{t} x{n + k}" for k, t in enumerate(types)]
        lines = [f"const auto {self.combination} = []({', '.join(params)}) BODY {{"]
        known = [*self.dtypes, *self.dtypes]
        for op, args in monoid.steps:
            source = known[args[-1]]
            result = torch.bool if SCALARS[op].result == "bool" else source
            text = applied(op, tuple(f"x{a}" for a in args), source, result)
            lines.append(f"  const {DTYPES[result]} x{len(known)} = {text};")
            known.append(result)
        moved = [f"x{k} = x{o};" for k, o in enumerate(monoid.outputs)]
        return [*lines, f"  {' '.join(moved)}", "};"]

    @property
    def combination(self) -> str:
        return f"{self.stmt.monoid}{self.number}"

    # -- folding ----------------------------------------------------------------------------------------------------

    def update(self, args: Sequence[str], at: str = "", part: bool = False) -> str:
        """Folds one more tuple of values into the accumulator; with ``part``, into the partial sum."""
        if self.parted and not part:
            if self.careful:
                return f"flush(sum{self.number}{at}, err{self.number}{at}, {args[0]});"
            return f"sum{self.number}{at} += {args[0]};"
        if self.by_steps:
            return f"{self.combination}({', '.join([*(v.name + at for v in self.variables), *args])});"
        name = f"part{self.number}{at}" if part else self.variables[0].name + at
        return f"{name} = {REDUCTIONS[self.stmt.monoid][1].format(name, args[0])};"

    def flush(self) -> str:
        """Adds the partial sums of all lanes to their sums. The partial sums keep their values."""
        return f"flush({', '.join([*(v.name for v in self.variables), f'part{self.number}'])});"

    def gather(self) -> list[str]:
        """Folds all L lanes of a state with several components into lane 0, in a fixed order."""
        if not self.by_steps:
            return []
        other = [f"{v.name}[m]" for v in self.variables]
        return [f"halve<L>([&](int l, int m) BODY {{ {self.update(other, '[l]')} }});"]

    def totals(self, lanes: str = "L") -> list[tuple[str, str]]:
        """(type, text) of each component of the state of all L lanes together, after ``gather``, or of scalars."""
        if not lanes and not self.careful:
            return [(v.ctype, v.name) for v in self.variables]
        if self.parted:
            return [("double", f"total({', '.join(v.name for v in self.variables)})")]
        if self.by_steps:
            return [(v.ctype, f"{v.name}[0]") for v in self.variables]
        (v,) = self.variables
        function = REDUCTIONS[self.stmt.monoid][1].partition("(")[0]
        return [(v.ctype, f"fold<{function}<{v.ctype}>>({v.name})")]

    def results(self, at: str = "") -> list[str]:
        """The text of each result, in the dtype of the statement."""
        if self.careful:
            return [f"total(sum{self.number}{at}, err{self.number}{at})"]
        if self.parted:
            return [f"float(sum{self.number}{at})"]
        return [loaded(v.name + at, d) for v, d in zip(self.variables, self.dtypes, strict=True)]


def _declared(v: Variable, lanes: str) -> str:
    return f"{v.ctype} {v.name}[{lanes}]; fill({v.name}, {v.start});" if lanes else f"{v.ctype} {v.name} = {v.start};"
