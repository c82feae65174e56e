"""The functions of kernels, for the C++ runtime: C functions of shared objects, or launches of a device's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from keel.artifact.runtime_data import ProgramData
from keel.artifact.runtime_tables import Scope
from keel.loops.ir import Kernel
from keel.plugin import CodeObject, KernelFunction, expression_of
from keel.serialize.codec import Data, NotSerializable

MOST = 128
"""The most parameters of a kernel that the runtime calls."""


class KernelFunctions:
    """The functions of the kernels of one part. ``code`` has its machine code, with the members that hold it."""

    def __init__(self, data: ProgramData, kernels: Sequence[Kernel], code: Sequence[tuple[str, CodeObject]]) -> None:
        self.data = data
        self._code: dict[Kernel, list[tuple[str, str, KernelFunction]]] = {}
        for member, each in code:
            for function in each.functions:
                self._code.setdefault(kernels[function.source], []).append((each.kind, member, function))
        self._numbers: dict[Kernel, int] = {}

    def of(self, kernel: Kernel, scope: Scope) -> int:
        """The number of a kernel's function. Its symbols are those of the scope."""
        if kernel not in self._numbers:
            buffers, symbols = len(kernel.buffers), len(kernel.symbols)
            if buffers + symbols > MOST:
                raise NotSerializable(
                    f"The kernel {kernel.name} has {buffers + symbols} parameters, more than the {MOST} of the C++ "
                    f"runtime."
                )
            self._numbers[kernel] = self._function(kernel, buffers, symbols, scope)
        return self._numbers[kernel]

    def _function(self, kernel: Kernel, buffers: int, symbols: int, scope: Scope) -> int:
        functions = self._code.get(kernel, [])
        match functions:
            case [("elf", member, function)]:
                return self.data.function("elf", member, function.name, buffers, symbols)
            case [("cubin", _, _), *_] if all(kind == "cubin" for kind, _, _ in functions):
                launches = [self._launch(kernel, member, function, scope) for _, member, function in functions]
                return self.data.launched_function(launches, buffers, symbols)
            case []:
                raise NotSerializable(f"There is no machine code for the kernel {kernel.name}.")
        raise NotSerializable(f"The C++ runtime does not run machine code of the kind {functions[0][0]!r}.")

    def _launch(self, kernel: Kernel, member: str, function: KernelFunction, scope: Scope) -> Data:
        """One function of a device, with what a launch needs: expressions over symbols become numbers of the table."""
        launch: Mapping[str, Any] = function.launch
        known = {name: sympy.Symbol(name, integer=True) for name in kernel.symbols}

        def number(data: Data) -> int:
            return self.data.tables.number(expression_of(data, known), scope)

        return {
            "code": self.data.code_member("cubin", member),
            "name": function.name,
            "step": launch["step"],
            "rank": launch["rank"],
            "conditions": [*map(number, launch["conditions"])],
            "alignment": launch["alignment"],
            "grid": [*map(number, launch["grid"])],
            "block": [*launch["block"]],
            "cluster": [*launch["cluster"]],
            "shared": launch["shared"],
            "parameters": [
                [kind, *(value if kind == "buffer" else number(value) for value in values)]
                for kind, *values in launch["parameters"]
            ],
        }
