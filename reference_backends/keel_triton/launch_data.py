"""What the driver needs to launch a function of a cubin, as JSON data for runtimes in any language.

The keys of ``KernelFunction.launch``:

* ``symbols``: the names of the kernel's symbols, in order. Expressions are over these names, in the form of
  ``keel.plugin.expression_data``.
* ``step``: a kernel runs its steps 0, 1 … in order, and one function for each. A kernel without functions does nothing.
* ``rank``: of the functions of a step that may be launched, the one with the lowest rank is.
* ``conditions``: the function may be launched if all of these hold,
* ``alignment``: and if the address of each of its buffers is a multiple of this.
* ``grid``, ``block``, ``cluster``: three numbers each, of blocks in the grid, threads in a block, blocks in a cluster.
  Those of the grid are expressions. If one of them is 0, the step launches nothing.
* ``shared``: bytes of dynamic shared memory. For more than 48 KiB the function's attribute has to be set first.
* ``parameters``: in order, ``["buffer", k]``, the address of the kernel's buffer ``k``; ``["int32", expression]`` or
  ``["int64", expression]``; or ``["null"]``, a null pointer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy

from keel import KeelError
from keel.loops import Kernel, evaluate
from keel.plugin import CodeObject, KernelFunction, expression_of
from keel_triton.block_conditions import Expression, plus, programs, size_data
from keel_triton.block_sizes import Blocks
from keel_triton.driver import DeviceCode
from keel_triton.launch_plan import Launch

WIDTHS = ("int32", "int64")


def launch_data(
    kernel: Kernel, launch: Launch, code: DeviceCode, blocks: Sequence[Blocks], wide: bool
) -> dict[str, Any]:
    """The keys that follow from a launch, its machine code, the blocks of its parts and the width of its numbers."""
    position = {b.name: k for k, b in enumerate(kernel.buffers)}
    buffers = [["buffer", position[b.name]] for b in launch.buffers]
    numbers = [[WIDTHS[wide], size_data(n)] for n in launch.numbers.values()]
    nulls = [["null"]] * (code.parameters - len(buffers) - len(numbers))
    count = plus(*(programs(part, b) for part, b in zip(launch.parts, blocks, strict=True)))
    return {
        "symbols": list(kernel.symbols),
        "grid": [count, 1, 1],
        "block": [code.threads, 1, 1],
        "cluster": [1, 1, 1],
        "shared": code.shared,
        "parameters": [*buffers, *numbers, *nulls],
    }


@dataclass(frozen=True)
class FunctionLaunch:
    """The launch of a function that was read from data. Sizes are expressions over the kernel's symbols, as data."""

    code: DeviceCode
    step: int
    rank: int
    conditions: tuple[Expression, ...]
    alignment: int
    grid: Expression
    buffers: tuple[int, ...]
    numbers: tuple[Expression, ...]

    def fits(self, aligned: bool, sizes: Mapping[str, int]) -> bool:
        """True if it may be launched with addresses that are all multiples of 16 or not, at these sizes."""
        return (aligned or self.alignment == 1) and all(value(c, sizes) for c in self.conditions)


def value(expression: Expression, sizes: Mapping[str, int]) -> int:
    """The value of an expression at these sizes. Raises KeelError[bad-artifact] if it is not an expression over them.

    It is parsed when it is first used, since that takes longer than all else that loading does.
    """
    if isinstance(expression, int):
        return expression
    try:
        return evaluate(_parsed(json.dumps(expression), tuple(sizes)), sizes)
    except (KeelError, KeyError, TypeError, ValueError, ArithmeticError) as e:
        raise KeelError(
            "bad-artifact", f"{expression!r:.200} is not an expression over {', '.join(sizes)}.", {"triton": f"{e}."}
        ) from e


@lru_cache(maxsize=4096)
def _parsed(text: str, symbols: tuple[str, ...]) -> Any:
    return expression_of(json.loads(text), {name: sympy.Symbol(name, integer=True) for name in symbols})


def read_launch(code: CodeObject, function: KernelFunction, kernel: Kernel) -> FunctionLaunch:
    """The launch of a function of ``code``. Raises KeelError[bad-artifact] for data that is not of ``launch_data``, or
    that is of another kernel.
    """
    try:
        return _read(code, function, kernel)
    except (KeyError, IndexError, TypeError, ValueError) as e:
        raise KeelError(
            "bad-artifact",
            f"The launch of {function.name} cannot be read.",
            {"triton": f"{type(e).__name__}: {e}."},
            do="It was written by another version of keel_triton, or is damaged. Compile the kernels again.",
        ) from e


def _read(code: CodeObject, function: KernelFunction, kernel: Kernel) -> FunctionLaunch:
    data = function.launch
    if tuple(data["symbols"]) != tuple(kernel.symbols):
        raise ValueError(f"its symbols are {data['symbols']}, and the kernel's are {[*kernel.symbols]}")

    kinds = [p[0] for p in data["parameters"]]
    ordered = [k for kind in (("buffer",), WIDTHS, ("null",)) for k in kinds if k in kind]
    if kinds != ordered or data["cluster"] != [1, 1, 1] or data["grid"][1:] != [1, 1] or data["block"][1:] != [1, 1]:
        raise ValueError("only buffers, numbers and null pointers in this order are launched, in one dimension")
    device_code = DeviceCode(code.content, function.name, data["block"][0], data["shared"], len(kinds))
    buffers = tuple(p[1] for p in data["parameters"] if p[0] == "buffer")
    if not all(type(k) is int and 0 <= k < len(kernel.buffers) for k in buffers):
        raise ValueError(f"it takes the buffers {[*buffers]} of {len(kernel.buffers)}")
    if not all(type(data[key]) is int for key in ("step", "rank", "alignment", "shared")):
        raise ValueError("a number is not an integer")
    return FunctionLaunch(
        device_code,
        data["step"],
        data["rank"],
        tuple(data["conditions"]),
        data["alignment"],
        data["grid"][0],
        buffers,
        tuple(p[1] for p in data["parameters"] if p[0] in WIDTHS),
    )
