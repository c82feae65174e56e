"""A loop target as a graph-level backend: what it refuses follows from its tables, and it compiles by lower, schedule,
render, build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from keel import dump
from keel.errors import KeelError
from keel.externs import advice
from keel.graph.size_hints import typical_sizes
from keel.loops.bounds_checks import NEEDS, lower_checks
from keel.loops.builder import CheckedIndex, LoopDefinition
from keel.loops.ir import Apply, Kernel, Reduce, Scan
from keel.loops.legalize_scalars import expand, why_unsupported, why_unsupported_monoid
from keel.loops.lower import calls_by_result, lower
from keel.loops.verify import verify
from keel.plugin import (
    Backend,
    CodeObject,
    CompileContext,
    Launcher,
    LoopTarget,
    Refusal,
    Source,
    Staged,
    with_context,
)
from keel.runtime.device_tensors import DeviceTensors, launcher_with_transfers, with_transfers
from keel.runtime.launch import LoopPart, loop_function, loop_program
from keel.schedule.layout import choose_layouts
from keel.schedule.pack_weights import pack_weights
from keel.schedule.pad_products import pad_products
from keel.schedule.schedule import Schedule, schedule
from keel.schedule.separate_bias import separate_biases
from keel.schedule.tensor_graph import build_tensor_graph
from keel.symbols import HostNumbers, evaluate, free_symbols
from keel.torch_adapter import is_assertion, real_tensors
from keel.types import DTYPE_NAMES, Call, Dim, TensorType


def loop_backend(target: LoopTarget) -> Backend:
    """Makes a graph-level backend of a loop target."""

    def begin(gm: fx.GraphModule, ctx: CompileContext) -> Callable[[], Callable[..., tuple[Any, ...]]]:
        return begin_part(target, gm, ctx)

    def compile(gm: fx.GraphModule, ctx: CompileContext | None = None) -> Callable[..., tuple[Any, ...]]:
        return compile_part(target, gm, ctx)

    return Backend(
        name=target.name,
        device=target.device,
        supports=lambda call: refuse(target, call),
        compile=Staged(begin) if target.concurrent else compile,
        probe=target.probe,
        cost=target.cost,
        host_scalars=True,
        target=target,
        warm_up=target.warm_up,
        arithmetic=target.arithmetic,
        options=target.options,
        fingerprint=target.fingerprint,
        api=target.api,
    )


# -- what a loop target takes --------------------------------------------------------------------------


def refuse(target: LoopTarget, call: Call) -> Refusal | None:
    """Why ``target`` refuses ``call``: an extern's reason, or what its tables lack. None if it takes the call."""
    if is_assertion(call.op):  # so that no part contains both an assertion and calls that depend on it
        return Refusal(f"{target.name} cannot run {call.name}: a kernel cannot raise an error.")
    types = [t for t in (*call.tensors, *call.out) if isinstance(t, TensorType)]
    extern = target.externs.get(call.name)
    # Arguments and results of a library call may be on the host; a kernel reads and writes one device.
    away = [t for t in types if t.device.type != target.device]
    if away and (extern is None or len(away) == len(types)):
        return Refusal(
            f"{target.name} works on {target.device}, not on {away[0].device.type}.", f"a copy on {target.device}"
        )
    why: Refusal | str | None = None
    if extern is not None:
        why = extern.refuse(call) if extern.refuse else None
        if why is None:
            return None
    for each in calls_by_result(call):
        definition = lower(each)
        if isinstance(definition, str):
            lacking = Refusal(f"{target.name} has no {call.name}: {definition}{advice(call)}")
            return lacking if why is None else Refusal(why) if isinstance(why, str) else why
        if (beyond := _beyond(target, each, definition)) is not None:
            return beyond
    return None


def _beyond(target: LoopTarget, call: Call, definition: LoopDefinition) -> Refusal | None:
    """Why the target's tables cannot express a definition."""
    for dtype in (*(t.dtype for t in call.tensors), *(t.dtype for t in call.out if isinstance(t, TensorType))):
        if dtype not in target.dtypes:
            return Refusal(f"{target.name} has no {DTYPE_NAMES.get(dtype, str(dtype))}, which {call.name} uses here.")
    dtypes: dict[int, torch.dtype] = {}
    for step in definition.steps:
        match step:
            case Apply():
                if why := why_unsupported(step.op, target.scalars, dtypes[step.args[-1]], target.dtypes):
                    return Refusal(f"{target.name} cannot compute {step.op}, which {call.name} needs: {why}")
            case CheckedIndex() if not target.checks:
                for op, dtype in NEEDS:
                    if why := why_unsupported(op, target.scalars, dtype, target.dtypes):
                        return Refusal(f"{target.name} cannot check indices, which {call.name} needs: {why}")
            case Reduce() | Scan() if step.monoid not in target.reductions:
                if why := why_unsupported_monoid(step.monoid, step.dtypes, target.scalars, target.dtypes):
                    return Refusal(f"{target.name} cannot fold with {step.monoid}, which {call.name} needs: {why}")
            case _:
                pass
        if isinstance(step, Reduce | Scan):
            dtypes |= zip(step.results, step.dtypes, strict=True)
        else:
            dtypes[step.result] = step.dtype
    update = definition.update
    if update is not None and (lacking := target.limits.lacks(update.mode, dtypes[update.value])):
        return Refusal(f"{target.name} has no {lacking}, which {call.name} needs.{advice(call)}")
    return None


# -- compiling -----------------------------------------------------------------------------------------


def compile_part(
    target: LoopTarget, gm: fx.GraphModule, ctx: CompileContext | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Compiles a part to a callable over its inputs. Its own memory is allocated here."""
    return begin_part(target, gm, ctx or CompileContext())()


def begin_part(
    target: LoopTarget, gm: fx.GraphModule, ctx: CompileContext
) -> Callable[[], Callable[..., tuple[Any, ...]]]:
    """Runs all stages but building the kernels, and returns a function that builds them."""
    plan = schedule_part(target, gm, ctx)
    kernels = {k: verified(fitted(k, target)) for k in plan.kernels()}
    sources = [Source(k, _rendered(target, k, ctx)) for k in kernels.values()]
    for source in sources:
        name = source.kernel.name
        dump.write(ctx.dump, "scheduled", source.kernel.__str__, name)
        dump.write(ctx.dump, "rendered", source.text.__str__, f"{name}.{target.suffix}")
    part = f"part{dump.count(ctx.dump, 'launched')}"
    dump.write(ctx.dump, "launched", lambda: dump.json_text(plan.as_json(hints_of(gm, plan.tensors.host))), part)

    constants = _constants(gm, ctx) if target.memory else ()

    def finish() -> Callable[..., tuple[Any, ...]]:
        with real_tensors():
            return build_part(target, LoopPart(loop_program(plan, target), tuple(sources), constants), ctx)

    finish.kernels = len(sources)  # type: ignore[attr-defined]
    return finish


def build_part(
    target: LoopTarget, part: LoopPart, ctx: CompileContext, objects: Sequence[CodeObject] | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Builds the kernels of a part, or loads them from ``objects``, the machine code that ``compile_kernels`` made.
    Returns a callable over the part's inputs, whose attribute ``loop_part`` is ``part``. Raises KeelError[build-failed]
    if the target does not return a launcher for each kernel, and what ``load_kernels`` raises.
    """
    if objects is not None:
        launchers: Sequence[Launcher] = load_kernels(target, objects, part.sources, ctx)
    else:
        built = with_context(target.build, ctx)(list(part.sources)) if part.sources else []
        launchers = _checked_launchers(target, "build", built, part.sources)
    tensors = None if target.memory is None else DeviceTensors(with_context(target.memory, ctx)())
    run = loop_function(part.program, dict(zip(part.program.kernels(), launchers, strict=True)), tensors)
    run = run if tensors is None else with_transfers(run, tensors, part.constants)
    run.loop_part = part  # type: ignore[attr-defined]
    return run


def kernel_launchers(target: LoopTarget, kernels: Sequence[Kernel]) -> list[Launcher]:
    """A launcher for each of ``kernels``, which ``fitted`` has legalized, with the default of each option. They take
    tensors of the target's device, also if kernels work on other memory. Raises KeelError[build-failed].
    """
    ctx = CompileContext(options={option.name: option.default for option in target.options})
    sources = [Source(kernel, _rendered(target, kernel, ctx)) for kernel in kernels]
    built = with_context(target.build, ctx)(sources) if sources else []
    launchers = _checked_launchers(target, "build", built, sources)
    if target.memory is None:
        return launchers
    tensors = DeviceTensors(with_context(target.memory, ctx)())
    return [launcher_with_transfers(launcher, tensors) for launcher in launchers]


def compile_kernels(
    target: LoopTarget, sources: Sequence[Source], ctx: CompileContext, machine: str | None = None
) -> tuple[CodeObject, ...]:
    """The machine code of kernels for ``machine``, a name that the target knows, or for this machine if it is None.

    Raises KeelError[bad-artifact] if the target has no `compile`, KeelError[build-failed] if it returns something other
    than CodeObject values of these sources, and what the target raises for a name that it does not know.
    """
    if target.compile is None:
        raise KeelError(
            "bad-artifact",
            f"{target.name} has no machine code that can be saved.",
            {target.name: "It has no `compile` and no `load`."},
            do="Leave it out of the backends of the package, or ask its vendor for these functions of a LoopTarget.",
        )
    objects = with_context(target.compile, ctx)(list(sources), machine) if sources else ()
    if not isinstance(objects, Sequence) or not all(isinstance(each, CodeObject) for each in objects):
        raise KeelError(
            "build-failed",
            f"{target.name} compiled no machine code: `compile` returned a {type(objects).__name__} that is not a list "
            f"of CodeObject values.",
        )
    _check_functions("build-failed", target, objects, sources)
    return tuple(objects)


def load_kernels(
    target: LoopTarget, objects: Sequence[CodeObject], sources: Sequence[Source], ctx: CompileContext
) -> list[Launcher]:
    """The launchers of kernels, from the machine code that ``compile_kernels`` made of the same sources.

    Raises KeelError[not-here] if this machine lacks what the code needs, KeelError[bad-artifact] if the target has no
    `load` or the objects are not of these sources, and KeelError[build-failed] if it does not return a launcher for
    each source.
    """
    if target.load is None:
        raise KeelError(
            "bad-artifact",
            f"{target.name} cannot load machine code.",
            {target.name: "It has no `compile` and no `load`."},
            do="Install a version of it that has them, or compile the kernels here.",
        )
    _check_functions("bad-artifact", target, objects, sources)
    launchers = with_context(target.load, ctx)(list(objects), list(sources)) if sources else []
    return _checked_launchers(target, "load", launchers, sources)


def _check_functions(code: str, target: LoopTarget, objects: Sequence[CodeObject], sources: Sequence[Source]) -> None:
    """Raises KeelError[code] if a function belongs to none of the sources. A source may have no function, because there
    are kernels that launch nothing.
    """
    numbers = {function.source for each in objects for function in each.functions}
    if not numbers <= {*range(len(sources))}:
        raise KeelError(
            code,
            f"The machine code of {target.name} does not fit {len(sources)} kernels.",
            {target.name: f"Its functions belong to the sources {', '.join(map(str, sorted(numbers)))}."},
        )


def _checked_launchers(target: LoopTarget, hook: str, made: object, sources: Sequence[Source]) -> list[Launcher]:
    if not isinstance(made, Sequence) or not all(map(callable, made)):
        raise KeelError(
            "build-failed",
            f"{target.name} built no launchers: `{hook}` returned a "
            f"{type(made).__name__} that is not a list of functions.",
        )
    if len(made) != len(sources):
        raise KeelError("build-failed", f"{target.name} built {len(made)} launchers for {len(sources)} kernels.")
    return list(made)


def _rendered(target: LoopTarget, kernel: Kernel, ctx: CompileContext) -> str:
    text = with_context(target.render, ctx)(kernel)
    if not isinstance(text, str) or not text.strip():
        raise KeelError(
            "build-failed",
            f"{target.name} rendered no source for the kernel {kernel.name}: `render` returned {text!r:.80}.",
        )
    return text


def fitted(kernel: Kernel, target: LoopTarget) -> Kernel:
    """Legalizes ``kernel`` for the target. Raises KeelError[no-lowering], which names an op that cannot be expanded."""
    known = kernel if target.checks else lower_checks(kernel)
    return expand(known, target.scalars, target.reductions, target.dtypes)


def schedule_part(target: LoopTarget, gm: fx.GraphModule, ctx: CompileContext | None = None) -> Schedule:
    """The kernels and library calls of a part, before they are rendered."""
    ctx = ctx or CompileContext()
    packed = pack_weights(gm, target.externs, ctx, hints_of(gm))
    tensors = separate_biases(build_tensor_graph(gm, lower, target.externs, packed))
    hint = hints_of(gm, tensors.host)
    tensors = pad_products(choose_layouts(tensors, hint, ctx.fuel))
    overwrites, donated = _overwrites(gm, ctx), _donated(gm, ctx)
    if target.memory:  # kernels would write to copies of inputs
        overwrites, donated = {}, frozenset()
    return schedule(tensors, target.limits, hint, ctx.fuel, overwrites, donated)


def _constants(gm: fx.GraphModule, ctx: CompileContext) -> tuple[int, ...]:
    """The positions of the part's inputs that are constants."""
    names = [n.name for n in gm.graph.find_nodes(op="placeholder")]
    return tuple(k for k, name in enumerate(names) if name in ctx.constants)


def _overwrites(gm: fx.GraphModule, ctx: CompileContext) -> dict[int, int]:
    """The numbers of the part's outputs that may be written over an input, with the number of the input."""
    if not ctx.overwrites:
        return {}
    inputs = {n.name: k for k, n in enumerate(gm.graph.find_nodes(op="placeholder"))}
    results: Sequence[Any] = gm.graph.output_node().args[0]  # type: ignore[assignment]
    named = {o: ctx.overwrites.get(r.name) for o, r in enumerate(results) if isinstance(r, fx.Node)}
    return {o: inputs[i] for o, i in named.items() if i in inputs}


def _donated(gm: fx.GraphModule, ctx: CompileContext) -> frozenset[int]:
    """The numbers of the part's inputs that may be overwritten."""
    inputs = enumerate(gm.graph.find_nodes(op="placeholder"))
    return frozenset(k for k, n in inputs if n.name in ctx.donated)


def verified(kernel: Kernel) -> Kernel:
    verify(kernel)
    return kernel


def hints_of(gm: fx.GraphModule, host: HostNumbers | None = None) -> Callable[[Dim], int]:
    """Estimates of symbolic sizes: the values they had when the graph was captured, 64 where those are not known.

    ``host`` maps symbols of kernels to the expressions that the host computes.
    """
    table = typical_sizes(gm.graph)

    def known(name: str) -> int:
        expr = None if host is None else host.by_name.get(name)
        if expr is None:
            return table.get(name, UNKNOWN)
        try:
            return int(evaluate(expr, {s: table.get(s, UNKNOWN) for s in free_symbols(expr)}))
        except (ArithmeticError, ValueError):
            return UNKNOWN

    def hint(dim: Dim) -> int:
        return dim if isinstance(dim, int) else int(evaluate(dim, {s: known(s) for s in free_symbols(dim)}))

    return hint


UNKNOWN = 64
"""The estimate of an unknown size."""
