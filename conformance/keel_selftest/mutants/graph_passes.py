"""Mutants of what compilers do with whole graphs: fuse, fold, keep by too little, drop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from ..mutant import broken
from ..rewiring import packet, run, run_eager, with_layout_of
from .stateful import shapes, shares

Called = Callable[..., Any]
GRAPHS = ("graphs-*", "drawn-program", "models-*", "calls-*")


@broken(breaks=("contract.graphs", "contract.models", "contract.calls"), programs=GRAPHS)
def epilogue_seen_by_all(gm: fx.GraphModule) -> Called:
    """What is fused onto a product is seen by the product's other users, too."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = run_eager(node, args, kwargs)
        if (
            packet(node) in ("aten.relu", "aten.sigmoid", "aten.tanh", "aten.neg", "aten.abs")
            and isinstance(result, Tensor)
            and len(node.all_input_nodes[0].users) > 1
        ):
            source = node.all_input_nodes[0]
            if source.op == "call_function" and not shares(result, args):
                args[0].copy_(result)
        return result

    return lambda *inputs: run(gm, inputs, do)


@broken(
    breaks=("contract.graphs", "contract.models", "contract.calls", "contract.gradients", "contract.shapes"),
    programs=(*GRAPHS, "gradients-*", "shapes-*"),
)
def like_nodes_are_one(gm: fx.GraphModule) -> Called:
    """Two nodes with the same operator and tensors are computed once, whatever numbers they are given."""

    def call(*inputs: Any) -> Any:
        known: dict[Any, Any] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            if not node.all_input_nodes or "aten" not in str(node.target):
                return run_eager(node, args, kwargs)
            result = run_eager(node, args, kwargs)
            key = (node.target, *node.all_input_nodes)
            if isinstance(result, Tensor) and not shares(result, tuple(a for a in args if isinstance(a, Tensor))):
                first = known.setdefault(key, result)
                return first if (first.shape, first.dtype) == (result.shape, result.dtype) else result
            return result

        return run(gm, inputs, do)

    return call


@broken(breaks=("contract.layouts", "contract.calls"), programs=("layouts-*", "shapes-strides*", "calls-*"))
def cached_without_strides(gm: fx.GraphModule) -> Called:
    """A program is compiled once for all strides, and reads later arguments by those of the first."""
    key = (
        gm.code,
        *(
            str(tuple(n.meta["val"].shape))
            for n in gm.graph.find_nodes(op="placeholder")
            if isinstance(n.meta.get("val"), Tensor)
        ),
    )

    def call(*inputs: Any) -> Any:
        first = STRIDES.setdefault(key, [x.stride() if isinstance(x, Tensor) else None for x in inputs])
        return run(gm, [other(x, s) for x, s in zip(inputs, first, strict=True)], run_eager)

    return call


STRIDES: dict[Any, list[Any]] = {}
"""What ``cached_without_strides`` keeps, being wrong in just that."""


def other(x: Any, strides: Any) -> Any:
    """The memory of ``x`` read by these strides, where it reaches."""
    if not isinstance(x, Tensor) or strides is None or x.stride() == strides or len(strides) != x.dim():
        return x
    last = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True) if n)
    return x.as_strided(x.shape, strides) if last < x.untyped_storage().nbytes() // x.element_size() else x


@broken(breaks=("contract.mutation", "contract.buffers"), programs=("mutation-*", "buffers-*"))
def second_write_lost(gm: fx.GraphModule) -> Called:
    """Of several results that have an argument's size, as what is written to it has, the last is the argument as it
    was.
    """

    def fits(result: Any, x: Any) -> bool:
        return (
            isinstance(result, Tensor)
            and isinstance(x, Tensor)
            and (result.shape, result.stride(), result.dtype) == (x.shape, x.stride(), x.dtype)
        )

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        before = {k: x.clone() for k, f in enumerate(results) for x in inputs if fits(f, x)}
        if len(before) > 1:
            results[max(before)] = before[max(before)]
        return tuple(results)

    return call


@broken(breaks=("contract.views", "contract.aliases"), programs=("views-*", "aliases-*"))
def views_are_copies(gm: fx.GraphModule) -> Called:
    """Results that are views of arguments are copies."""

    def call(*inputs: Any) -> Any:
        return tuple(x.clone() if shares(x, inputs) else x for x in run(gm, inputs, run_eager))

    return call


@broken(
    breaks=("contract.calls", "contract.arguments", "contract.graphs", "contract.models"),
    programs=("calls-*", "arguments-*", "drawn-program", "models-*"),
)
def results_of_one_type_swapped(gm: fx.GraphModule) -> Called:
    """Of three results or more the last two change places where they have the same type."""

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        if (
            len(results) > 2
            and isinstance(results[-1], Tensor)
            and isinstance(results[-2], Tensor)
            and (shapes(results[-1:]) == shapes(results[-2:-1]))
        ):
            results[-1], results[-2] = results[-2], results[-1]
        return tuple(results)

    return call


@broken(
    breaks=("contract.graphs", "contract.models", "contract.calls", "contract.gradients"),
    programs=(*GRAPHS, "gradients-*"),
)
def casts_away(gm: fx.GraphModule) -> Called:
    """A cast to a smaller dtype is dropped, and its values go on as they were."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = run_eager(node, args, kwargs)
        small = packet(node) == "aten._to_copy" and isinstance(result, Tensor) and not result.is_floating_point()
        if small and args[0].is_floating_point() and result.dtype != torch.bool:
            return with_layout_of(args[0].round(), result)
        return result

    return lambda *inputs: run(gm, inputs, do)


@broken(
    breaks=("contract.graphs", "contract.models", "contract.calls", "contract.gradients"),
    programs=(*GRAPHS, "gradients-*"),
)
def copies_of_the_destination(gm: fx.GraphModule) -> Called:
    """Where images lie as convolutions want, a copy passes for its destination, since that lies as the result does."""
    laid_out = any("convolution" in packet(n) for n in gm.graph.nodes)

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = run_eager(node, args, kwargs)
        removed = laid_out and packet(node) == "aten.copy" and args[0].stride() == args[1].stride()
        return args[0].clone() if removed else result

    return lambda *inputs: run(gm, inputs, do)


@broken(breaks="contract.shapes", programs=("shapes-*",))
def sizes_rounded_up(gm: fx.GraphModule) -> Called:
    """With sizes that change, what comes after the last whole multiple of 8 of the first size is left out."""
    symbolic = any(
        "val" in n.meta and not isinstance(n.meta["val"], Tensor) for n in gm.graph.find_nodes(op="placeholder")
    )

    def tail(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.dim() or x.shape[0] < 8 or x.shape[0] % 8 == 0:
            return x
        retained = x.clone()
        retained[x.shape[0] // 8 * 8 :] = 0
        return retained

    def call(*inputs: Any) -> Any:
        result = run(gm, inputs, run_eager)
        return tuple(tail(x) if symbolic and not shares(x, inputs) else x for x in result)

    return call


@broken(breaks=("contract.random",), programs=("random-*",))
def draws_merged(gm: fx.GraphModule) -> Called:
    """Two draws of the same sizes in one program are one."""

    def call(*inputs: Any) -> Any:
        known: dict[Any, Any] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            result = run_eager(node, args, kwargs)
            drawn = isinstance(result, Tensor) and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            return known.setdefault((node.target, result.shape, result.dtype), result).clone() if drawn else result

        return run(gm, inputs, do)

    return call


@broken(breaks=("contract.graphs", "contract.models"), programs=GRAPHS)
def limits_of_limits(gm: fx.GraphModule) -> Called:
    """Of two clamps in a row the second one is all there is."""

    def call(*inputs: Any) -> Any:
        sources: dict[fx.Node, Any] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            if packet(node) != "aten.clamp" or not isinstance(node.args[0], fx.Node):
                return run_eager(node, args, kwargs)
            sources[node] = sources.get(node.args[0], args[0])
            return run_eager(node, (sources[node], *args[1:]), kwargs)

        return run(gm, inputs, do)

    return call


@broken(breaks=("contract.graphs", "contract.models", "contract.dtypes"), programs=(*GRAPHS, "dtypes-*"))
def quotients_cancel(gm: fx.GraphModule) -> Called:
    """An integer divided and multiplied by one number is what it was."""

    def call(*inputs: Any) -> Any:
        values: dict[Any, Any] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            values.update((a, x) for a, x in zip(node.args, args, strict=True) if isinstance(a, fx.Node))
            result, source = run_eager(node, args, kwargs), next(iter(node.args), None)
            divided = isinstance(source, fx.Node) and packet(source) in ("aten.div", "aten.floor_divide")
            if (
                packet(node) != "aten.mul"
                or not divided
                or not isinstance(source, fx.Node)
                or (result.is_floating_point() or source.args[1] != node.args[1])
            ):
                return result
            return with_layout_of(values[source.args[0]], result)

        return run(gm, inputs, do)

    return call


@broken(breaks=("contract.graphs", "contract.models", "contract.shapes"), programs=(*GRAPHS, "shapes-*"))
def pieces_of_the_first(gm: fx.GraphModule) -> Called:
    """A slice of joined tensors that begins in the first and fits into it is taken from its end."""

    def call(*inputs: Any) -> Any:
        joined: dict[Any, tuple[Any, int]] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            if packet(node) == "aten.cat":
                joined[node] = (args[0][0], (*args, 0)[1])
            result = run_eager(node, args, kwargs)
            if packet(node) != "aten.slice" or node.args[0] not in joined or len(args) < 3:
                return result
            (first, along), (_, dim, start) = joined[node.args[0]], args[:3]
            size = result.shape[dim]
            end = first.shape[dim]
            if dim != along % result.dim() or not 0 < start < end < start + size or size > end:
                return result
            return with_layout_of(first.narrow(dim, end - size, size), result)

        return run(gm, inputs, do)

    return call


@broken(breaks=("contract.calls", "contract.models"), programs=("calls-*", "models-*"))
def threads_share_results(gm: fx.GraphModule) -> Called:
    """Results lie in memory that other threads write to before they are copied out of it."""
    held: dict[Any, list[Any]] = {}

    def call(*inputs: Any) -> Any:
        result = run(gm, inputs, run_eager)
        memory = held.setdefault(shapes(inputs), [x.clone() if isinstance(x, Tensor) else x for x in result])
        owned = [isinstance(x, Tensor) and not shares(x, inputs) for x in result]
        for m, x, own in zip(memory, result, owned, strict=True):
            if own:
                m.copy_(x)
        time.sleep(1e-4)
        return tuple(m.clone() if own else x for m, x, own in zip(memory, result, owned, strict=True))

    return call


ASSERTIONS = ("errors-*", "assertions-*")


@broken(breaks=("contract.errors", "contract.assertions"), programs=ASSERTIONS)
def assertions_dropped(gm: fx.GraphModule) -> Called:
    """Assertions are not made."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return let_through(args) if "assert" in str(node.target) else run_eager(node, args, kwargs)

    return lambda *inputs: run(gm, inputs, do)


@broken(breaks=("contract.errors", "contract.assertions"), programs=ASSERTIONS)
def assertions_last(gm: fx.GraphModule) -> Called:
    """Assertions are made when all else is done."""

    def call(*inputs: Any) -> Any:
        put_off: list[Callable[[], Any]] = []

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            if "assert" not in str(node.target):
                return run_eager(node, args, kwargs)
            put_off.append(partial(run_eager, node, args, kwargs))
            return let_through(args)

        result = run(gm, inputs, do)
        for assertion in put_off:
            assertion()
        return result

    return call


@broken(breaks=("contract.errors", "contract.assertions"), programs=ASSERTIONS)
def assertions_of_the_first_call(gm: fx.GraphModule) -> Called:
    """Assertions are made at the first call and then believed."""
    made: set[fx.Node] = set()

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "assert" in str(node.target) and node in made:
            return let_through(args)
        made.add(node)
        return run_eager(node, args, kwargs)

    return lambda *inputs: run(gm, inputs, do)


@broken(breaks=("contract.assertions",), programs=("assertions-*",))
def promised_sizes_believed(gm: fx.GraphModule) -> Called:
    """What is asserted of a size is taken for granted; other assertions are made."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return let_through(args) if packet(node) == "aten._functional_assert_scalar" else run_eager(node, args, kwargs)

    return lambda *inputs: run(gm, inputs, do)


def let_through(args: Sequence[Any]) -> Any:
    """What an assertion gives: nothing, or what it is given to give."""
    return args[2] if len(args) > 2 else None


@broken(breaks=("contract.graphs", "contract.arguments", "contract.models"), programs=("arguments-*", "graphs-*"))
def twelve_arguments(gm: fx.GraphModule) -> Called:
    """Arguments beyond the twelfth are the twelfth, where they have its type."""

    def call(*inputs: Any) -> Any:
        last = inputs[11] if len(inputs) > 12 else None
        same = [isinstance(x, Tensor) and isinstance(last, Tensor) and shapes([x]) == shapes([last]) for x in inputs]
        return run(gm, [last if k > 11 and same[k] else x for k, x in enumerate(inputs)], run_eager)

    return call


@broken(breaks=("contract.graphs", "contract.scalars", "contract.models"), programs=("graphs-*", "scalars-*"))
def numbers_of_few_digits(gm: fx.GraphModule) -> Called:
    """Python numbers are rounded to bfloat16."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        short = tuple(float(torch.tensor(a).bfloat16()) if isinstance(a, float) else a for a in args)
        return run_eager(node, short, kwargs)

    return lambda *inputs: run(gm, inputs, do)
