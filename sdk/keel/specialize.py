"""Compilers that need known sizes: a part with symbolic sizes is compiled once for each value of its sizes.

Sizes that a part can be padded along (see ``keel.padding``) are rounded up, so that few values are compiled. Every
value of the other sizes is compiled, and the least recently used ones are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import torch
from torch import fx

from keel.errors import KeelError, first_line
from keel.graph.calls import call_of, source_line
from keel.graph.static_sizes import (
    call_with_sizes,
    fits_its_types,
    graph_with_sizes,
    size_symbols,
    type_with_sizes,
)
from keel.interrupts import is_interrupt
from keel.loops.growing_index import Blocks
from keel.masked_graph import Mask, MaskedGraph, masked
from keel.padding import cut, padded, resized
from keel.plugin import Backend, CompileContext, Refusal, Staged, Support, with_context
from keel.plugin.graph_claims import complete_fusions
from keel.refusals import answer
from keel.runtime.contract_checks import PartContract, Run, contract_of, mismatch
from keel.runtime.last_resorts import compile_instead
from keel.runtime.prepared_constants import runnable
from keel.runtime.symbol_values import symbol_values
from keel.serialize.codec import NotSerializable
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
DO = "Compile the model with other backends, or with known sizes (dynamic=False)."
Sizes = tuple[tuple[str, int], ...]


def needs_static_sizes(backend: Backend) -> bool:
    """True if a backend, or a row of its support table, says that it needs known sizes."""
    rows = backend.supports.rules if isinstance(backend.supports, Support) else ()
    return backend.static or any(row.static for row in rows)


def specialized(backend: Backend, buckets: tuple[int, ...] | None = None, others: tuple[Backend, ...] = ()) -> Backend:
    """The backend with symbolic sizes: it takes what it would take if sizes were known, and compiles for each of them,
    in two stages if the backend does.

    ``buckets`` are the values that sizes are rounded up to, ascending; a size above all of them is not rounded. The
    default is powers of two; with none, no size is rounded. ``others`` compile parts for sizes that come later and that
    the backend fails for.
    """
    compile = _Compile(_Begin(backend, buckets, others))
    staged = Staged(compile.begin) if isinstance(backend.compile, Staged) else compile
    saves = backend.serialize and _Serialize(backend.serialize)
    return replace(backend, supports=_Supports(backend), compile=staged, static=False, serialize=saves)


@dataclass(frozen=True)
class _Serialize:
    """Serializes parts of known sizes. A value, so that equal settings compare equal."""

    serialize: Callable[[Any], bytes]

    def __call__(self, compiled: Any) -> bytes:
        if isinstance(compiled, SpecializedPart):
            raise NotSerializable("It is compiled for each size that comes.")
        return self.serialize(compiled)


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
    others: tuple[Backend, ...]

    def __call__(self, gm: fx.GraphModule, ctx: CompileContext) -> Callable[[], Any]:
        if not ctx.sizes:
            return _first_stage(self.backend, gm, ctx)
        part = SpecializedPart(self.backend, gm, ctx, self.buckets, self.others)
        typical = {name: size.typical for name, size in ctx.sizes.items() if size.typical is not None}
        return part.begin(part.version(typical)) if typical.keys() == ctx.sizes.keys() else lambda: part


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


@dataclass(frozen=True)
class Version:
    """The sizes that a part is compiled for, and whether in the form with masks."""

    sizes: Sizes
    masked: bool = False

    @property
    def values(self) -> dict[str, int]:
        return dict(self.sizes)


class SpecializedPart:
    """A part, as a function of its inputs, that is compiled for each of the sizes that it is called with."""

    def __init__(
        self,
        backend: Backend,
        gm: fx.GraphModule,
        ctx: CompileContext,
        buckets: Sequence[int] | None,
        others: Sequence[Backend],
    ) -> None:
        self.backend, self.gm, self.ctx, self.buckets, self.others = backend, gm, ctx, buckets, others
        self.contract: PartContract = contract_of(gm, backend.name, "part")
        rounded = sorted(_size_symbols(self.contract.inputs) & ctx.sizes.keys()) if buckets != () else ()
        self.masked, self.plain, self.masking = MaskedGraph(gm), set[str](), set[str]()
        for name in rounded:
            graph = masked(self.masked, name, ctx.sizes)
            if isinstance(graph, MaskedGraph):
                (self.masking if len(graph.masks) > len(self.masked.masks) else self.plain).add(name)
                self.masked = graph
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        self.input_blocks = [_of_value(self.masked.inputs, name) for name in names]
        self.output_blocks = [_of_value(self.masked.outputs, k) for k in range(len(self.contract.outputs))]
        self.tensors = tuple(i for i, t in enumerate(self.contract.inputs) if isinstance(t, TensorType))
        self._compiled: OrderedDict[Version, Callable[..., Sequence[Any]]] = OrderedDict()
        self._fits = lru_cache(maxsize=CHECKED)(self._fit)
        self._mask = lru_cache(maxsize=CHECKED)(_mask)
        self._lock = Lock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        sizes = symbol_values(self.contract.inputs, inputs)
        version = self.version(sizes)
        run, larger = self.compiled(version), version.values
        if larger == sizes and not version.masked:
            return run(*[inputs[i] for i in self.tensors])
        masks = [self._mask(mask, _key(sizes), version.sizes) for mask in self.masked.masks] if version.masked else []
        results = run(*[self._padded(i, inputs[i], sizes, larger) for i in self.tensors], *masks)
        return [self._cut(k, result, larger, sizes) for k, result in enumerate(results)]

    def _padded(self, i: int, value: Any, sizes: Mapping[str, int], larger: Mapping[str, int]) -> Any:
        value = _in_blocks(value, self.input_blocks[i], sizes, larger)
        return _resized(padded, self.contract.inputs[i], value, larger)

    def _cut(self, k: int, value: Any, larger: Mapping[str, int], sizes: Mapping[str, int]) -> Any:
        value = _in_blocks(value, self.output_blocks[k], larger, sizes)
        return _resized(cut, self.contract.outputs[k], value, sizes)

    def version(self, sizes: Mapping[str, int]) -> Version:
        """The version for inputs of these sizes. Sizes are rounded up where padding changes no result, with masks or
        without, within the bounds, and if all of them fit each other and the backend takes the calls.
        """
        versions = [Version(self._rounded(sizes, self.plain))]
        if self.masking:
            versions.insert(0, Version(self._rounded(sizes, self.plain | self.masking), masked=True))
        exact = Version(_key(sizes))
        return next((v for v in versions if v == exact or self._fits(v)), exact)

    def _rounded(self, sizes: Mapping[str, int], names: Collection[str]) -> Sizes:
        return _key({name: self._larger(name, n) if name in names else n for name, n in sizes.items()})

    def _larger(self, name: str, value: int) -> int:
        high = self.ctx.sizes[name].high
        if self.buckets is None:
            larger = max(LEAST, 1 << (value - 1).bit_length())
            larger = larger if high is None else min(larger, high)
        else:
            larger = next((b for b in self.buckets if b >= value), value)
        return value if value == 0 or (high is not None and larger > high) else larger

    def _graph(self, version: Version) -> tuple[fx.GraphModule, list[Call]]:
        return graph_with_sizes(self.masked.gm if version.masked else self.gm, version.values)

    def _fit(self, version: Version) -> bool:
        try:
            with real_tensors():
                gm, calls = self._graph(version)
                return fits_its_types(gm) and all(answer(self.backend, call) is None for call in calls)
        except (ArithmeticError, ValueError, RuntimeError, KeelError):  # a size is negative, or cannot be computed
            return False

    def compiled(self, version: Version) -> Callable[..., Sequence[Any]]:
        """The part for these sizes. If the backend refuses a call for these sizes that it took for others, or cannot
        compile it, the first of ``others`` that takes the part compiles it, with a KeelWarning. Raises
        KeelError[compile-raised] if none of them takes it.
        """
        with self._lock:
            if version not in self._compiled:
                try:
                    self.begin(version)()
                except BaseException as raised:
                    if is_interrupt(raised):
                        raise
                    self._compiled[version] = self._instead(version, "compile", raised)
                if len(self._compiled) > MOST:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(version)
            return self._compiled[version]

    def begin(self, version: Version) -> Callable[[], SpecializedPart]:
        """Begins to compile the part for these sizes, and returns a function that finishes it and returns the part.
        Both raise what the backend raises, and KeelError[compile-raised] if it refuses a call.
        """
        instead = partial(self._instead, version, "prepare the constants of")
        with real_tensors():
            gm, calls = self._graph(version)
            ctx = replace(self.ctx, sizes={}, fusions=complete_fusions(self.ctx.fusions, gm.graph))
            for call in calls:
                if (why := answer(self.backend, call)) is not None:
                    what = f"{self.backend.name} does not take {call}, the call of a part for {_text(version.values)}."
                    line = next(source_line(node) for node in gm.graph.nodes if call_of(node) is call)
                    raise KeelError("compile-raised", what, {self.backend.name: str(why)}, line, DO)
            finish = _first_stage(self.backend, gm, ctx)

        def finished() -> SpecializedPart:
            with real_tensors():
                self._compiled[version] = runnable(finish(), gm, ctx, instead)
            return self

        return finished

    def _instead(self, version: Version, what: str, raised: BaseException) -> Run:
        """The part for these sizes, compiled by another backend, because the backend ``raised`` and could not do
        ``what``.
        """
        error = self._failure(version.values, what, raised)
        with real_tensors():
            gm, _ = self._graph(version)
            return compile_instead(gm, replace(self.ctx, sizes={}), self.others, error, raised)

    def _failure(self, sizes: Mapping[str, int], what: str, raised: BaseException) -> KeelError:
        """The error that says for which sizes the backend failed, and why."""
        if isinstance(raised, KeelError) and raised.code == "compile-raised":
            return raised
        line = next((line for node in self.gm.graph.nodes if (line := source_line(node)) is not None), None)
        what = f"{self.backend.name} could not {what} a part for {_text(sizes)}."
        return KeelError("compile-raised", what, {self.backend.name: first_line(raised)}, line, DO)


def _text(sizes: Mapping[str, int]) -> str:
    return f"the sizes {', '.join(f'{name}={value}' for name, value in sizes.items())}"


def _mask(mask: Mask, sizes: Sizes, larger: Sizes) -> torch.Tensor:
    return mask.value(dict(sizes), dict(larger))


def _key(sizes: Mapping[str, int]) -> Sizes:
    return tuple(sorted(sizes.items()))


def _in_blocks(value: Any, blocks: Mapping[str, Blocks], before: Mapping[str, int], after: Mapping[str, int]) -> Any:
    """A value with its blocks resized, for one size after the other."""
    for name, each in blocks.items():
        changed = {**before, name: after[name]}
        value, before = resized(value, each, before, changed), changed
    return value


def _of_value(by_size: Mapping[str, Any], value: str | int) -> dict[str, Blocks]:
    """The blocks of one value, for each size for which it has some."""
    return {size: blocks[value] for size, blocks in by_size.items() if any(blocks[value])}


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
