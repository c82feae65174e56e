"""A program for the C++ runtime while it is written: its tables, its slots for tensors, and its steps."""

from __future__ import annotations

from keel.artifact.runtime_tables import Tables
from keel.serialize.codec import Data
from keel.symbols import solve_linear
from keel.types import TensorType


class ProgramData:
    """The steps and the tables of a program. ``freed`` are the slots that steps have freed."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.slots = 0
        self.freed: set[int] = set()
        self.steps: list[Data] = []
        self.code: list[Data] = []
        self.functions: list[Data] = []
        self.arenas: list[Data] = []
        self.records: list[Data] = []
        self.packed: list[Data] = []
        self.parts: list[Data] = []

    def do(self, *step: Data) -> None:
        """Appends a step."""
        self.steps.append([*step])

    def slot(self) -> int:
        """A new slot for a tensor."""
        self.slots += 1
        return self.slots - 1

    def free(self, slot: int) -> None:
        """Frees a slot, unless it is free already."""
        if slot not in self.freed:
            self.freed.add(slot)
            self.do("free", slot)

    def function(self, kind: str, member: str, name: str, buffers: int, symbols: int) -> int:
        """The number of a function of the machine code in a member of the package."""
        return _number(self.functions, [self.code_member(kind, member), name, buffers, symbols])

    def launched_function(self, launches: list[Data], buffers: int, symbols: int) -> int:
        """The number of a function that consists of launches of a device's code."""
        return _number(self.functions, {"launches": launches, "buffers": buffers, "symbols": symbols})

    def code_member(self, kind: str, member: str) -> int:
        """The number of machine code in a member of the package."""
        return _number(self.code, [kind, member])

    def bind_sizes(self, scope: dict[str, int], type: TensorType, slot: int) -> None:
        """Binds the symbols that the sizes of a tensor are the first to tell, and adds them to the scope."""
        for dim, size in enumerate(type.shape):
            if (solved := solve_linear(size, scope)) is not None:
                name, factor, rest = solved
                self.bind(scope, name, ["size", slot, dim], factor, rest)

    def bind(self, scope: dict[str, int], name: str, source: Data, factor: object = 1, rest: object = 0) -> None:
        """``name = (source - rest) // factor``; the symbol is added to the scope."""
        numbers = self.tables.numbers((factor, rest), scope)
        scope[name] = self.tables.symbol(name)
        self.do("bind", scope[name], source, *numbers)


def _number(table: list[Data], entry: Data) -> int:
    if entry not in table:
        table.append(entry)
    return table.index(entry)
