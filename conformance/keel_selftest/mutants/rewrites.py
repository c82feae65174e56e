"""Mutants of rewrites that hold for most graphs: foldings, merged moves, dropped epilogues, memory given away twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from ..mutant import Mutant, broken
from ..rewiring import packet, run, run_eager, with_layout_of
from .stateful import copied, shares

Called = Callable[..., Any]
Rewrite = Callable[[fx.Node, Sequence[Any], Mapping[str, Any], Any], Any]
BREAKS = (
    "contract.graphs",
    "contract.models",
    "contract.calls",
    "contract.gradients",
    "contract.layouts",
    "contract.views",
    "contract.shapes",
    "contract.dtypes",
    "contract.training",
    "contract.partition",
)
EVERYWHERE = (
    "graphs-*",
    "drawn-program",
    "models-*",
    "calls-*",
    "gradients-*",
    "layouts-*",
    "views-*",
    "shapes-*",
    "dtypes-*",
    "training-*",
    "partition-*",
)


def rewrites(rewrite: Rewrite) -> Mutant:
    """A mutant of what takes the place of a node's result: of the node, its arguments, and its right result."""

    def compile(gm: fx.GraphModule) -> Called:
        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            right = run_eager(node, args, kwargs)
            result = rewrite(node, args, kwargs, right)
            return right if result is None or result is right else with_layout_of(result, right)

        return lambda *inputs: run(gm, inputs, do)

    compile.__name__, compile.__doc__, compile.__module__ = rewrite.__name__, rewrite.__doc__, rewrite.__module__
    return broken(breaks=BREAKS, programs=EVERYWHERE)(compile)


def source(node: fx.Node, place: int = 0) -> fx.Node | None:
    """The node that makes an argument, if one does."""
    result = node.args[place] if place < len(node.args) else None
    return result if isinstance(result, fx.Node) and result.op == "call_function" else None


def makes(node: fx.Node | None, *packets: str) -> bool:
    return node is not None and packet(node) in packets


# -- foldings ----------------------------------------------------------------------------------------------------------


@rewrites
def zero_times_anything(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """A product with the number 0 is 0, of NaN and infinity, too."""
    zero = packet(node) == "aten.mul" and not isinstance(args[1], Tensor) and args[1] == 0
    return torch.zeros_like(right) if zero else None


@rewrites
def equal_operands_folded(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """x / x is 1, and x - x is 0, whatever x is."""
    if len(node.args) < 2 or node.args[0] is not node.args[1] or not isinstance(right, Tensor):
        return None
    return {"aten.div": torch.ones_like, "aten.sub": torch.zeros_like}.get(packet(node), lambda x: None)(right)


@rewrites
def equal_to_itself(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """x == x is true, and x != x false, of NaN, too."""
    if len(node.args) < 2 or node.args[0] is not node.args[1]:
        return None
    return {"aten.eq": torch.ones_like, "aten.ne": torch.zeros_like}.get(packet(node), lambda x: None)(right)


@broken(breaks=BREAKS, programs=EVERYWHERE)
def narrow_and_back_dropped(gm: fx.GraphModule) -> Called:
    """A cast to another dtype and back is dropped."""

    def call(*inputs: Any) -> Any:
        before: dict[fx.Node, Any] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            right, first = run_eager(node, args, kwargs), source(node)
            if makes(node, "aten._to_copy"):
                before[node] = args[0]
                if first in before and before[first].dtype == right.dtype:
                    return with_layout_of(before[first], right)
            return right

        return run(gm, inputs, do)

    return call


@rewrites
def sums_of_expanded_count_once(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """A sum over a dimension that was expanded counts one element of it."""
    if not makes(node, "aten.sum") or not makes(source(node), "aten.expand") or not isinstance(args[0], Tensor):
        return None
    x = args[0]
    dims = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) and args[1] else range(x.dim())
    many = prod(x.shape[d] for d in dims if x.stride(d) == 0 and x.shape[d] > 1)
    return right / many if right.is_floating_point() else right // max(many, 1)


@rewrites
def constants_of_one_size_are_one(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """Constants of the same sizes and dtype are the first of them."""
    if packet(node) not in ("aten.full", "aten.zeros", "aten.ones", "aten.full_like", "aten.zeros_like"):
        return None
    first = next((n for n in node.graph.nodes if packet(n) == packet(node) and n.op == "call_function"), node)
    same = (
        first is not node
        and isinstance(first.meta.get("val"), Tensor)
        and (first.meta["val"].shape == right.shape and first.meta["val"].dtype == right.dtype)
    )
    return (
        torch.full_like(right, first.args[1])
        if same and len(first.args) > 1 and isinstance(first.args[1], int | float)
        else None
    )


# -- epilogues ---------------------------------------------------------------------------------------------------------
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.convolution", "aten.sum")


@rewrites
def epilogue_dropped(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """What comes by elements after a product or a sum, whose only user it is, is dropped."""
    before = source(node)
    if before is None or not makes(node, "aten.relu", "aten.neg", "aten.abs", "aten.sigmoid", "aten.tanh"):
        return None
    return args[0] if makes(before, *PRODUCTS) and len(before.users) == 1 else None


@rewrites
def bias_of_another_axis(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """What is added to a square product by columns is added by rows."""
    matches = makes(node, "aten.add") and makes(source(node), "aten.mm", "aten.bmm", "aten.view")
    if not matches or not isinstance(args[1], Tensor) or args[1].dim() != 1 or right.dim() < 2 or kwargs:
        return None
    return args[0] + args[1].unsqueeze(1) if right.shape[-1] == right.shape[-2] else None


@rewrites
def second_operand_of_the_epilogue(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """What is taken from a reduction after it is computed is taken before: amax(x) - y is y - amax(x)."""
    matches = makes(node, "aten.sub") and makes(source(node, 1), "aten.amax", "aten.sum", "aten.amin")
    return -right if matches and right.is_floating_point() and not kwargs else None


# -- moves -------------------------------------------------------------------------------------------------------------


@rewrites
def permutes_cancel(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """A permutation of a permutation is what was there before, where the sizes are the same."""
    before = source(node)
    turns = ("aten.permute", "aten.transpose", "aten.t")
    if not makes(node, *turns) or not makes(before, *turns):
        return None
    back = args[0].transpose(0, -1) if args[0].dim() > 1 else None
    return back if back is not None and back.shape == right.shape else None


@rewrites
def reshape_in_memory_order(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """What is reshaped is read in the order of memory, whatever its strides."""
    if packet(node) not in ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.clone"):
        return None
    x = args[0]
    if x.is_contiguous() or not x.numel() or 0 in x.stride():
        return None
    last = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    fills_memory = last - x.storage_offset() + 1 == x.numel()
    return x.as_strided((x.numel(),), (1,)).reshape(right.shape) if fills_memory else None


@rewrites
def slices_of_slices(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """A slice of a slice forgets the first start."""
    before = source(node)
    if not makes(node, "aten.slice", "aten.select") or not makes(before, "aten.slice", "aten.select"):
        return None
    x = args[0]
    start = x.storage_offset() // max(x.stride(0) if x.dim() else 1, 1) * (x.stride(0) if x.dim() else 1)
    offset = right.storage_offset() - start
    return right.as_strided(right.shape, right.stride(), offset).clone() if offset >= 0 and start else None


@rewrites
def joined_from_the_first(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """What is joined of parts by elements reads the index of the whole, and so every part from its own start again."""
    if packet(node) != "aten.cat" or len(args[0]) < 2:
        return None
    first, *rest = args[0]
    return torch.cat(
        [first, *[first if x.shape == first.shape and x.dtype == first.dtype else x for x in rest]], *args[1:]
    )


# -- memory and calls --------------------------------------------------------------------------------------------------


@broken(
    breaks=("contract.calls", "contract.graphs", "contract.models", "contract.aliases", "contract.layouts"),
    programs=("graphs-*", "calls-*", "aliases-*", "drawn-program", "models-*", "layouts-*"),
)
def two_results_in_one_memory(gm: fx.GraphModule) -> Called:
    """Of results of the same type the second is written where the first one lies."""

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        for k, x in enumerate(results[1:], 1):
            y = results[k - 1]
            if (
                isinstance(x, Tensor)
                and isinstance(y, Tensor)
                and (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride())
                and not shares(x, [*inputs, y])
                and not shares(y, inputs)
            ):
                y.detach().copy_(x)
        return tuple(results)

    return call


@broken(
    breaks=("contract.mutation", "contract.calls", "contract.aliases"), programs=("mutation-*", "calls-*", "aliases-*")
)
def result_over_an_argument(gm: fx.GraphModule) -> Called:
    """A result of an argument's type is written where the argument lies."""

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        for x in inputs:
            number = next(
                (
                    k
                    for k, y in enumerate(results)
                    if isinstance(x, Tensor)
                    and isinstance(y, Tensor)
                    and (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride())
                    and not shares(y, inputs)
                ),
                None,
            )
            if number is not None and 0 not in x.stride():
                results[number] = x.detach().copy_(results[number])
                break
        return tuple(results)

    return call


@broken(
    breaks=("contract.calls", "contract.training", "contract.shapes"),
    programs=("calls-*", "training-*", "shapes-*", "models-*", "aliases-*", "layouts-*"),
)
def wrong_from_the_fifth_call(gm: fx.GraphModule) -> Called:
    """From the fifth call on the last element of each result is that of the fourth."""
    count, retained = [0], list[Any]()

    def call(*inputs: Any) -> Any:
        count[0] += 1
        results = list(run(gm, inputs, run_eager))
        if count[0] == 4:
            retained[:] = copied(results)
        if count[0] > 4:
            results = [
                last_of(x, k)
                if isinstance(x, Tensor)
                and isinstance(k, Tensor)
                and x.shape == k.shape
                and (not shares(x, inputs))
                and x.numel()
                else x
                for x, k in zip(results, retained, strict=True)
            ]
        return tuple(results)

    return call


def last_of(x: Tensor, earlier: Tensor) -> Tensor:
    result = x.clone()
    result[tuple(n - 1 for n in x.shape)] = earlier[tuple(n - 1 for n in x.shape)]
    return result


@broken(
    breaks=("contract.layouts", "contract.calls", "contract.mutation"),
    programs=("layouts-*", "calls-*", "mutation-*", "views-*"),
)
def addresses_rounded_down(gm: fx.GraphModule) -> Called:
    """Arguments that do not begin at a multiple of 16 bytes are read from the multiple before."""

    def call(*inputs: Any) -> Any:
        return run(gm, [aligned(x) if isinstance(x, Tensor) else x for x in inputs], run_eager)

    return call


def aligned(x: Tensor) -> Tensor:
    off = x.storage_offset() % max(16 // x.element_size(), 1)
    return x.as_strided(x.shape, x.stride(), x.storage_offset() - off) if off and x.numel() else x


@broken(
    breaks=("contract.calls", "contract.models", "contract.graphs", "contract.scalars"),
    programs=("graphs-*", "calls-*", "models-*", "drawn-program", "scalars-*"),
)
def known_by_its_operators(gm: fx.GraphModule) -> Called:
    """Programs with the same operators and types of arguments are the first of them, whatever numbers they have."""

    def type_text(x: Any) -> str:
        return f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else str(type(x))

    key = (
        *(str(n.target) if n.op == "call_function" else type_text(n.meta.get("val")) for n in gm.graph.nodes),
        *(str([str(a) for a in n.all_input_nodes]) for n in gm.graph.nodes),
    )
    first = KNOWN.setdefault(key, gm)
    return lambda *inputs: run(first, inputs, run_eager)


KNOWN: dict[Any, fx.GraphModule] = {}
"""What ``known_by_its_operators`` keeps, being wrong in just that."""


@broken(breaks=("contract.shapes", "contract.layouts", "contract.calls"), programs=("shapes-*", "layouts-*", "calls-*"))
def nothing_is_zero(gm: fx.GraphModule) -> Called:
    """Where an argument has no elements results are as they were allotted, and nothing is written."""

    def call(*inputs: Any) -> Any:
        result = run(gm, inputs, run_eager)
        none = any(isinstance(x, Tensor) and not x.numel() for x in inputs)
        return tuple(
            torch.full_like(x, 1) if none and isinstance(x, Tensor) and not shares(x, inputs) else x for x in result
        )

    return call


@broken(
    breaks=("contract.calls", "contract.graphs", "contract.layouts", "contract.dtypes"),
    programs=("graphs-*", "calls-*", "drawn-program", "layouts-*", "dtypes-*", "shapes-*"),
)
def whole_vectors_alone(gm: fx.GraphModule) -> Called:
    """Of results with more than one dimension rows end with the last whole vector of 4, and what follows is 0."""

    def cut(x: Any, inputs: Sequence[Any]) -> Any:
        if not isinstance(x, Tensor) or x.dim() < 2 or x.shape[-1] % 4 == 0 or x.shape[-1] < 5 or shares(x, inputs):
            return x
        retained = x.clone()
        retained[..., x.shape[-1] // 4 * 4 :] = 0
        return retained

    return lambda *inputs: tuple(cut(x, inputs) for x in run(gm, inputs, run_eager))
