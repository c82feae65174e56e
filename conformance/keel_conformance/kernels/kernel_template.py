"""A kernel as a text with sizes and a dtype left open, and what its buffers hold.

In a text, T is the dtype, N, M and K are sizes: numbers, or symbols of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keel.loops import Kernel, parse

from .kernel_case import BufferFill

NUMBERS = ("f32", "f64", "i32", "i64", "i8", "u8", "i16")
FLOATS = ("f32", "f64")
ALL = (*NUMBERS, "bf16", "f16", "u16", "u32", "u64", "b8", "c64", "c128")
SAME, ZERO = BufferFill("ints", 2, 3), BufferFill("ints", 0, 1)
"""A buffer with equal elements, so that a wrong index reads the same value; and a zeroed buffer in which a check
records.
"""


@dataclass(frozen=True)
class KernelTemplate:
    """``text`` is the kernel, ``letters`` its sizes, and ``fills`` says how to fill buffers that do not hold small
    integers.
    """

    name: str
    text: str
    letters: str
    clauses: tuple[str, ...]
    dtypes: tuple[str, ...]
    fills: Mapping[str, BufferFill]
    empty: bool = True  # sizes may be 0
    sizes: tuple[Mapping[str, int], ...] = ()  # of each call, if not the usual ones

    def kernel(self, dtype: str, sizes: Mapping[str, int] | None) -> Kernel:
        """The kernel for these sizes; for all of them without."""
        text = self.text.strip().replace("T[", f"{dtype}[").replace(": T", f": {dtype}")
        head, _, body = text.partition("\n")
        if sizes is None:
            used = [f"{s} >= 0" if self.empty else s for s in self.letters]
            return parse(f"{head[:-1]} where {', '.join(used)}:\n{body}\n")
        table = {ord(s): str(n) for s, n in sizes.items()}
        return parse(_sized(head, table) + "\n" + _sized(body, table) + "\n")


def _sized(text: str, table: Mapping[int, str]) -> str:
    """Only capital letters that stand alone are sizes."""
    out = []
    for k, c in enumerate(text):
        alone = not (k and (text[k - 1].isalnum() or text[k - 1] == "_")) and not (
            k + 1 < len(text) and (text[k + 1].isalnum() or text[k + 1] == "_")
        )
        out.append(table.get(ord(c), c) if alone else c)
    return "".join(out)
