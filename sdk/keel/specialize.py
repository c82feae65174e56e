"""Compilers that need known sizes: a part with symbolic sizes is compiled once for each value of its sizes.

Sizes that a part can be padded along (see ``keel.padding``) are rounded up, so that few values are compiled. Every
value of the other sizes is compiled, and the least recently used ones are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.static_sizes import (
    call_with_sizes,
    fits_its_types,
    graph_with_sizes,
    size_symbols,
    type_with_sizes,
)
from keel.padding import cut, padded, why_not_padded
from keel.plugin import Backend, CompileContext, PreparedConstants, Refusal, Staged, Support, with_context
from keel.refusals import answer
from keel.runtime.contract_checks import PartContract, contract_of, mismatch
from keel.runtime.prepared_constants import PreparedPart
from keel.runtime.symbol_values import symbol_values
from keel.symbols import free_symbols
from keel.torch_adapter import real_tensors
from keel.types import Call, TensorType, Type

MOST = 8
"""The most sizes of a part that are kept compiled."""
LEAST = 8
"""The smallest size that sizes are rounded up to."""
TYPICAL = 64
"""The value of each symbol in the calls that a backend is asked about."""
CHECKED = 256
"""The most rounded sizes of a part of which it is remembered whether they fit each other."""
Sizes = tuple[tuple[str, int], ...]


def needs_static_sizes(backend: Backend) -> bool:
    """True if a backend, or a row of its support table, says that it needs known sizes."""
    rows = backend.supports.rules if isinstance(backend.supports, Support) else ()
    return backend.static or any(row.static for row in rows)


def specialized(backend: Backend, buckets: tuple[int, ...] | None = None) -> Backend:
    """The backend with symbolic sizes: it takes what it would take if sizes were known, and compiles for each of them,
    in two stages if the backend does.

    ``buckets`` are the values that sizes are rounded up to, ascending; a size above all of them is not rounded. The
    default is powers of two; with none, no size is rounded.
    """
    compile = _Compile(_Begin(backend, buckets))
    staged = Staged(compile.begin) if isinstance(backend.compile, Staged) else compile
    return replace(backend, supports=_Supports(backend), compile=staged, static=False)


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
class _Begin:
    """Begins to compile a part for the sizes that it was captured with. Others are compiled when they come."""

    backend: Backend
    buckets: tuple[int, ...] | None

    def __call__(self, gm: fx.GraphModule, ctx: CompileContext) -> Callable[[], Any]:
        if not ctx.sizes:
            return _first_stage(self.backend, gm, ctx)
        part = SpecializedPart(self.backend, gm, ctx, self.buckets)
        typical = {name: size.typical for name, size in ctx.sizes.items() if size.typical is not None}
        return part.begin(part.rounded(typical)) if typical.keys() == ctx.sizes.keys() else lambda: part


@dataclass(frozen=True)
class _Compile:
    """Both stages."""

    begin: _Begin

    def __call__(self, gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        run: Callable[..., Any] = self.begin(gm, ctx)()
        return run


def _first_stage(backend: Backend, gm: fx.GraphModule, ctx: CompileContext) -> Callable[[], Any]:
    """The first stage of a backend, if it has two; and a function that compiles the part."""
    if isinstance(backend.compile, Staged):
        return with_context(backend.compile.begin, ctx)(gm)
    return partial(with_context(backend.compile, ctx), gm)


class SpecializedPart:
    """A part, as a function of its inputs, that is compiled for each of the sizes that it is called with."""

    def __init__(
        self, backend: Backend, gm: fx.GraphModule, ctx: CompileContext, buckets: Sequence[int] | None
    ) -> None:
        self.backend, self.gm, self.ctx, self.buckets = backend, gm, ctx, buckets
        self.contract: PartContract = contract_of(gm, backend.name, "part")
        rounded = sorted(_size_symbols(self.contract.inputs) & ctx.sizes.keys()) if buckets != () else ()
        self.not_padded = {name: why_not_padded(gm, name, ctx.sizes) for name in rounded}
        self.tensors = tuple(i for i, t in enumerate(self.contract.inputs) if isinstance(t, TensorType))
        self._compiled: OrderedDict[Sizes, Callable[..., Sequence[Any]]] = OrderedDict()
        self._fits = lru_cache(maxsize=CHECKED)(self._fit)
        self._lock = Lock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        sizes = symbol_values(self.contract.inputs, inputs)
        larger = self.rounded(sizes)
        run = self.compiled(larger)
        if larger == sizes:
            return run(*[inputs[i] for i in self.tensors])
        results = run(*[_resized(padded, self.contract.inputs[i], inputs[i], larger) for i in self.tensors])
        return [_resized(cut, want, got, sizes) for want, got in zip(self.contract.outputs, results, strict=True)]

    def rounded(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes to compile for: rounded up where padding changes no result, within the bounds, and if all of them
        fit each other.
        """
        larger = {name: self._rounded(name, value) for name, value in sizes.items()}
        return larger if larger == sizes or self._fits(_key(larger)) else dict(sizes)

    def _rounded(self, name: str, value: int) -> int:
        if self.not_padded.get(name, "") is not None:
            return value
        high = self.ctx.sizes[name].high
        if self.buckets is None:
            larger = max(LEAST, 1 << (value - 1).bit_length())
            larger = larger if high is None else min(larger, high)
        else:
            larger = next((b for b in self.buckets if b >= value), value)
        return value if value == 0 or (high is not None and larger > high) else larger

    def _fit(self, sizes: Sizes) -> bool:
        try:
            with real_tensors():
                return fits_its_types(graph_with_sizes(self.gm, dict(sizes))[0])
        except (ArithmeticError, ValueError, RuntimeError):  # a size is negative, or cannot be computed
            return False

    def compiled(self, sizes: Mapping[str, int]) -> Callable[..., Sequence[Any]]:
        """The part for these sizes. Raises what the backend raises, and KeelError[compile-raised] if it refuses a call
        for these sizes that it took for others.
        """
        key = _key(sizes)
        with self._lock:
            if key not in self._compiled:
                self.begin(sizes)()
                if len(self._compiled) > MOST:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(key)
            return self._compiled[key]

    def begin(self, sizes: Mapping[str, int]) -> Callable[[], SpecializedPart]:
        """Begins to compile the part for these sizes, and returns a function that finishes it and returns the part.
        Raises what ``compiled`` raises, and so does the function.
        """
        ctx = replace(self.ctx, sizes={})
        with real_tensors():
            gm, calls = graph_with_sizes(self.gm, sizes)
            self._check(calls, sizes)
            finish = _first_stage(self.backend, gm, ctx)

        def finished() -> SpecializedPart:
            with real_tensors():
                run = finish()
            if isinstance(run, PreparedConstants):
                names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
                run = PreparedPart(run, names, ctx.constants)
            if not callable(run):
                raise TypeError(f"`compile` returned {type(run).__name__}, not a callable.")
            self._compiled[_key(sizes)] = run
            return self

        return finished

    def _check(self, calls: Sequence[Call], sizes: Mapping[str, int]) -> None:
        for call in calls:
            if (why := answer(self.backend, call)) is not None:
                values = ", ".join(f"{name}={value}" for name, value in sizes.items())
                raise KeelError(
                    "compile-raised",
                    f"{self.backend.name} does not take {call}, the call of a part for the sizes {values}.",
                    {self.backend.name: str(why)},
                    do="Compile the model with other backends, or with known sizes (dynamic=False).",
                )


def _key(sizes: Mapping[str, int]) -> Sizes:
    return tuple(sorted(sizes.items()))


def _resized(
    change: Callable[[torch.Tensor, TensorType], torch.Tensor], type: Type, value: Any, sizes: Mapping[str, int]
) -> Any:
    """A value that ``change`` gives the type at these sizes, unless it has it."""
    if not isinstance(type, TensorType) or not isinstance(value, torch.Tensor):
        return value
    want = type_with_sizes(type, sizes)
    return value if mismatch(want, value, {}) is None else change(value, want)


def _size_symbols(types: Sequence[Type]) -> set[str]:
    """The symbols of sizes and of numbers. The others are in strides alone."""
    sizes = [d for t in types for d in (t.shape if isinstance(t, TensorType) else (t.expr,))]
    return {name for d in sizes for name in free_symbols(d)}
