"""Which steps of a launch program make each symbol known: read off an input or a library's result, or computed."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from keel.errors import KeelError
from keel.loops.ir import Kernel
from keel.runtime.launch_program import BindSymbol, Compute, InputNumber, SizeOf, Source, Step, StrideOf
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall
from keel.symbols import BitsOfFloat, FloatOfBits, free_symbols, solve_linear
from keel.types import Dim, SymType, TensorType, leaves, symbols_of


class LaunchSymbols:
    """The symbols of a schedule, and those that the steps so far bind."""

    def __init__(self, schedule: Schedule):
        self.schedule, self.tensors, self.host = schedule, schedule.tensors, schedule.tensors.host
        self._of_kernels: dict[int, tuple[str, ...]] = {}  # by the kernel's id: to find them takes a walk
        self.needed = self._needed()
        self.bound: set[str] = set()

    def of(self, kernel: Kernel) -> tuple[str, ...]:
        """The symbols of a kernel, in the order of its arguments."""
        if id(kernel) not in self._of_kernels:
            self._of_kernels[id(kernel)] = kernel.symbols
        return self._of_kernels[id(kernel)]

    def key(self) -> tuple[str, ...]:
        """The bound symbols that decide how large tensors are and where they lie."""
        return tuple(s for s in symbols_of(self._dims()) if s in self.bound)

    def bind_inputs(self) -> list[Step]:
        """Returns the steps that bind each symbol that inputs determine. Raises KeelError[bad-graph] if no input
        determines one.
        """
        sources: dict[str, Source] = {}
        read: list[Compute] = []
        numbers: list[tuple[Source, Dim]] = []
        for k, value in enumerate(self.tensors.inputs):
            if isinstance(value, SymType):
                name, integer = self._input(value)
                numbers += [(InputNumber(k), value.expr)] if value.kind == "int" else []
                if name is not None:
                    sources.setdefault(name, InputNumber(k))
                    read += integer
        inputs = [(i, self._type(i)) for i in self.tensors.inputs if isinstance(i, int)]
        sizes: list[tuple[Source, Dim]] = [(SizeOf(i, d), n) for i, t in inputs for d, n in enumerate(t.shape)]
        strides: list[tuple[Source, Dim]] = [(StrideOf(i, d), n) for i, t in inputs for d, n in enumerate(t.strides)]
        for source, dim in (*sizes, *strides):
            if isinstance(dim, sympy.Symbol):
                sources.setdefault(dim.name, source)
        needed = {
            *self.needed,
            *(s for c in read for s in free_symbols(c.value)),
            *(s for n in self.needed for s in free_symbols(self.host.by_name.get(n))),
        }
        steps: list[Step] = [BindSymbol(s, sources[s]) for s in sorted(needed) if s in sources]
        steps += [c for c in read if c.symbol not in sources]
        self.bound |= {*sources} | {c.symbol for c in read}
        for source, dim in (*numbers, *sizes):  # a size may be a multiple of what is looked for
            steps += self._solve(source, dim)
        steps += self._computed()
        self._verify()
        return steps

    def bind_sizes(self, tensor: int) -> list[Step]:
        """Steps that bind what the sizes of a library's result are the first to tell."""
        steps = [s for d, n in enumerate(self._type(tensor).shape) for s in self._solve(SizeOf(tensor, d), n)]
        return [*steps, *self._computed()]

    def _type(self, tensor: int) -> TensorType:
        return self.tensors.tensors[tensor].type

    def _input(self, value: SymType) -> tuple[str | None, list[Compute]]:
        """The symbol that an input is, and how the integer that kernels get is computed from it."""
        if isinstance(value.expr, FloatOfBits):
            bits = value.expr.args[0].name
            number = self.host.by_name[bits].args[0]
            if not isinstance(number, sympy.Symbol):
                number = sympy.Symbol(self.host.name(f"{bits}_float"), real=True)
            return number.name, [Compute(bits, BitsOfFloat(number))]
        if not isinstance(value.expr, sympy.Symbol):
            return None, []
        if value.kind != "bool":
            return value.expr.name, []
        truth = sympy.Symbol(self.host.name(f"{value.expr.name}_bool"), integer=True)
        return truth.name, [Compute(value.expr.name, sympy.Piecewise((1, truth > 0), (0, True)))]

    def _solve(self, source: Source, dim: Dim) -> list[Step]:
        """A step that binds the symbol which ``source`` is the first to tell, if there is one."""
        if (solved := solve_linear(dim, self.bound)) is None:
            return []
        self.bound.add(solved[0])
        return [BindSymbol(solved[0], source, *solved[1:])]

    def _computed(self) -> list[Step]:
        """Steps that compute what symbols stand for, where that is known by now."""
        ready = [s for s in self.needed if s not in self.bound and self._follows(s, self.bound)]
        self.bound |= {*ready}
        return [Compute(s, self.host.by_name[s]) for s in ready]

    def _follows(self, name: str, known: set[str]) -> bool:
        return name in self.host.by_name and known.issuperset(free_symbols(self.host.by_name[name]))

    def _verify(self) -> None:
        later = self.bound | {
            *symbols_of(
                d
                for s in self.schedule.steps
                if isinstance(s, ExternCall)
                for t in s.results
                if t >= 0
                for d in (*self._type(t).shape, *self._type(t).strides)
            )
        }
        for s in self.needed:
            if s not in later and not self._follows(s, later):
                raise KeelError("bad-graph", f"No input of the part tells the size {self.host.by_name.get(s, s)}.")

    def _needed(self) -> tuple[str, ...]:
        """Every symbol that a tensor, an input, an output, a kernel or an argument has, sorted."""
        dims = [*self._dims(), *_numbers((*self.tensors.inputs, *self.tensors.outputs))]
        names: set[str] = set()
        for step in self.schedule.steps:
            if isinstance(step, KernelLaunch):
                names |= {*self.of(step.kernel)}
            else:
                dims += _numbers(leaves((*step.args, *step.kwargs.values())))
        return tuple(sorted({*names, *symbols_of(dims)}))

    def _dims(self) -> list[Dim]:
        """The sizes of tensors, and where they lie."""
        dims: list[Dim] = [d for t in self.tensors.tensors for d in (*t.type.shape, *t.type.strides)]
        return dims + [t.alias[1] for t in self.tensors.tensors if t.alias]


def _numbers(values: Iterable[object]) -> list[Dim]:
    return [v.expr for v in values if isinstance(v, SymType) and not isinstance(v.expr, float)]
