"""Bounds checks as plain statements, for targets without a native form: comparisons, and a masked store that records a
failure.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from keel.loops.index import Index
from keel.loops.ir import Apply, Check, Const, Kernel, Loop, Position, Stmt, Store, results_of, walk

NEEDS = (*((op, torch.int64) for op in ("add", "ge", "lt", "where")), ("and", torch.bool), ("not", torch.bool))
"""The scalar ops that an expanded check uses, with the dtypes of their operands."""


def lower_checks(kernel: Kernel) -> Kernel:
    """Replaces each Check by plain statements; returns the same kernel if it has no Check. A failed check yields index
    0. Loads from a dimension without elements are masked anyway.
    """
    if not any(isinstance(s, Check) for s in walk(kernel.body)):
        return kernel
    first = 1 + max((r for s in walk(kernel.body) for r in results_of(s)), default=-1)
    return replace(kernel, body=_Writer(first).block(kernel.body))


class _Writer:
    def __init__(self, first: int):
        self.next = first
        self.out: list[Stmt] = []

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        before, self.out = self.out, []
        for stmt in body:
            match stmt:
                case Check():
                    self.check(stmt)
                case Loop():
                    self.out.append(replace(stmt, body=self.block(stmt.body)))
                case _:
                    self.out.append(stmt)
        made, self.out = tuple(self.out), before
        return made

    def check(self, s: Check) -> None:
        none, one, bound = self.const(0), self.const(1), self.fresh()
        self.out.append(Position(bound, Index(s.bound)))
        below = self.apply("lt", s.value, none)
        place = s.value
        if s.wrap:
            place = self.apply("where", below, self.apply("add", s.value, bound), s.value)
        inside = self.apply("and", self.apply("ge", place, none), self.apply("lt", place, bound))
        wrong = self.apply("not", inside)
        wrong = wrong if s.mask is None else self.apply("and", wrong, s.mask)
        index = self.apply("where", below, s.value, self.apply("add", s.value, one))
        self.out.append(Store(s.buffer, Index(s.site), index, "write", wrong))
        self.out.append(Apply(s.result, "where", (inside, place, none), torch.int64))

    def fresh(self) -> int:
        self.next += 1
        return self.next - 1

    def const(self, value: int) -> int:
        self.out.append(Const(self.fresh(), value, torch.int64))
        return self.next - 1

    def apply(self, op: str, *args: int) -> int:
        logic = op in ("lt", "ge", "and", "not")
        self.out.append(Apply(self.fresh(), op, args, torch.bool if logic else torch.int64))
        return self.next - 1
