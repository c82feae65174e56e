"""Compilers that need known sizes: a part with symbolic sizes is compiled once for each value of its sizes.

Sizes that a part can be padded along (see ``keel.padding``) are rounded up, so that few values are compiled. Every
value of the other sizes is compiled, and the least recently used ones are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, cast

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.static_sizes import call_with_sizes, graph_with_sizes, size_symbols
from keel.loops.symbolic_sizes import evaluate
from keel.padding import cut, padded, why_not_padded
from keel.plugin import Backend, CompileContext, PreparedConstants, Refusal, Support, with_context
from keel.refusals import answer
from keel.runtime.contract_checks import PartContract, Run, bind, contract_of, strides_of
from keel.runtime.prepared_constants import PreparedPart
from keel.torch_adapter import real_tensors
from keel.types import Call, Dim, TensorType

MOST = 8
"""The most sizes of a part that are kept compiled."""
LEAST = 8
"""The smallest size that sizes are rounded up to."""
TYPICAL = 64
"""The value of each symbol in the calls that a backend is asked about."""
Sizes = tuple[tuple[str, int], ...]


def needs_static_sizes(backend: Backend) -> bool:
    """True if a backend, or a row of its support table, says that it needs known sizes."""
    rows = backend.supports.rules if isinstance(backend.supports, Support) else ()
    return backend.static or any(row.static for row in rows)


def specialized(backend: Backend, buckets: tuple[int, ...] | None = None) -> Backend:
    """The backend with symbolic sizes: it takes what it would take if sizes were known, and compiles for each of them.

    ``buckets`` are the values that sizes are rounded up to, ascending; a size above all of them is not rounded. The
    default is powers of two; with none, no size is rounded.
    """
    return replace(backend, supports=_Supports(backend), compile=_Compile(backend, buckets), static=False)


@dataclass(frozen=True)
class _Supports:
    """Asks the backend about a call with known sizes. A value, so that equal settings compare equal."""

    backend: Backend

    def __call__(self, call: Call) -> Refusal | None:
        why = answer(self.backend, call)
        if why is None or call.is_static:
            return why
        try:
            static = call_with_sizes(call, dict.fromkeys(size_symbols(call), TYPICAL))
        except (ArithmeticError, ValueError, KeyError):  # the sizes do not fit each other
            return why
        return why if static is None else answer(self.backend, static)


@dataclass(frozen=True)
class _Compile:
    """Compiles a part for the sizes that it was captured with, and for others when they come."""

    backend: Backend
    buckets: tuple[int, ...] | None

    def __call__(self, gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        if not ctx.sizes:
            return with_context(self.backend.compile, ctx)(gm)
        part = SpecializedPart(self.backend, gm, ctx, self.buckets)
        typical = {name: size.typical for name, size in ctx.sizes.items()}
        if all(value is not None for value in typical.values()):
            part.compiled(part.rounded({name: value for name, value in typical.items() if value is not None}))
        return part


class SpecializedPart:
    """A part, as a function of its inputs, that is compiled for each of the sizes that it is called with."""

    def __init__(
        self, backend: Backend, gm: fx.GraphModule, ctx: CompileContext, buckets: Sequence[int] | None
    ) -> None:
        self.backend, self.gm, self.ctx, self.buckets = backend, gm, ctx, buckets
        self.contract: PartContract = contract_of(gm, backend.name, "part")
        self.not_padded = {name: why_not_padded(gm, name, ctx.sizes) for name in ctx.sizes} if buckets != () else {}
        self.tensors = tuple(i for i, t in enumerate(self.contract.inputs) if isinstance(t, TensorType))
        self._compiled: OrderedDict[Sizes, Callable[..., Sequence[Any]]] = OrderedDict()
        self._lock = Lock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        sizes = bind(self.contract.inputs, inputs)
        larger = self.rounded(sizes)
        run = self.compiled(larger)
        if larger == sizes:
            return run(*[inputs[i] for i in self.tensors])
        results = run(*[self._padded(self.contract.inputs[i], inputs[i], larger) for i in self.tensors])
        return [self._cut(want, got, sizes) for want, got in zip(self.contract.outputs, results, strict=True)]

    def rounded(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes to compile for: rounded up where padding changes no result, and within the bounds."""
        return {name: self._rounded(name, value) for name, value in sizes.items()}

    def _rounded(self, name: str, value: int) -> int:
        if name not in self.not_padded or self.not_padded[name] is not None:
            return value
        high = self.ctx.sizes[name].high
        if self.buckets is None:
            larger = max(LEAST, 1 << (value - 1).bit_length())
            larger = larger if high is None else min(larger, high)
        else:
            larger = next((b for b in self.buckets if b >= value), value)
        return value if value == 0 or (high is not None and larger > high) else larger

    def compiled(self, sizes: Mapping[str, int]) -> Callable[..., Sequence[Any]]:
        """The part for these sizes. Raises what the backend raises, and KeelError[compile-raised] if it refuses a call
        for these sizes that it took for others.
        """
        key = tuple(sorted(sizes.items()))
        with self._lock:
            if key not in self._compiled:
                self._compiled[key] = self._compile(sizes)
                if len(self._compiled) > MOST:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(key)
            return self._compiled[key]

    def _compile(self, sizes: Mapping[str, int]) -> Callable[..., Sequence[Any]]:
        with real_tensors():
            gm, calls = graph_with_sizes(self.gm, sizes)
            for call in calls:
                if (why := answer(self.backend, call)) is not None:
                    values = ", ".join(f"{name}={value}" for name, value in sizes.items())
                    raise KeelError(
                        "compile-raised",
                        f"{self.backend.name} does not take {call}, the call of a part for the sizes {values}.",
                        {self.backend.name: str(why)},
                        do="Compile the model with other backends, or with known sizes (dynamic=False).",
                    )
            ctx = replace(self.ctx, sizes={})
            run: Any = with_context(self.backend.compile, ctx)(gm)
            if isinstance(run, PreparedConstants):
                names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
                return PreparedPart(run, names, ctx.constants)
            if not callable(run):
                raise TypeError(f"`compile` returned {type(run).__name__}, not a callable.")
            return cast(Run, run)

    def _padded(self, want: Any, value: torch.Tensor, sizes: Mapping[str, int]) -> torch.Tensor:
        shape = _values(want.shape, sizes)
        return value if shape == tuple(value.shape) else padded(value, shape, _values(want.strides, sizes))

    def _cut(self, want: Any, result: torch.Tensor, sizes: Mapping[str, int]) -> torch.Tensor:
        shape = _values(want.shape, sizes)
        steps = [0 if step is None else step for step in strides_of(want, sizes)]
        return result if shape == tuple(result.shape) else cut(result, shape, steps)


def _values(dims: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, sizes) for dim in dims)
