"""Proves that a part may run at a larger size than it was called with: what is added changes no element of a result.

Inputs are padded with zeros to a larger value of a symbolic size, and the results are cut off. An element of a result
is the same at both sizes if the loop form of each call mentions the size only in the extents of its results: then it is
computed from the same elements by the same formula, whatever the size is. A sum along the size has it as the extent of
a loop, a mean divides by it, a flip subtracts from it, and a concatenation compares with it. All these are refused, and
so is what could fail for the zeros: an integer division, and an index that is computed. Where dimensions become one, as
a batch and a length do before a product, the proof follows elements to where they are at the larger size
(``keel.loops.growing_index``).

An input that is expanded along the size, with stride 0, is padded with the element that it repeats. The proof is about
one size at a time, and about calls whose results have the shapes that the graph promises. Whether the graph may have
some sizes at all, for instance a slice up to one size of another, is for ``fits_its_types`` of
``keel.graph.static_sizes`` to say.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch import fx
from torch.nn.functional import pad

from keel.graph.calls import call_of, type_of
from keel.graph.decompose import decompose_call
from keel.graph.purity import draws_nothing
from keel.loops.builder import LoopDefinition
from keel.loops.growing_index import Blocks
from keel.loops.lower import lower
from keel.neutral_operands import AddedMask, NeutralOperands, neutral_operands
from keel.padded_loops import ZERO, Behind, Fill, LoopProof, grows
from keel.plugin import SizeRange
from keel.runtime.result_casts import with_strides
from keel.spec.opset import decomposition_of
from keel.symbols import HostNumbers, evaluate
from keel.torch_adapter import NotRecorded, fake_mode_of_value, has_effect, is_overload, is_random
from keel.types import Call, Dim, SymType, TensorType, leaves

Known = dict[fx.Node, tuple[Behind, ...]]
"""What is known of the results of calls. Nothing is known of others, which do not depend on the size."""


@dataclass(frozen=True, eq=False)
class PaddedCalls:
    """What has to be changed in a graph before it can be padded: ``fills`` has the operands of calls that have to be
    filled behind the size, ``pieces`` the decompositions of calls inside of which an operand has to be filled, and
    ``masks`` the masks that calls have to get.
    ``inputs`` and ``outputs`` have the blocks of the graph's inputs, by name, and of its results.
    """

    fills: dict[fx.Node, tuple[Fill, ...]] = field(default_factory=dict)
    pieces: dict[fx.Node, fx.Graph] = field(default_factory=dict)
    masks: dict[fx.Node, AddedMask] = field(default_factory=dict)
    inputs: dict[str, Blocks] = field(default_factory=dict)
    outputs: list[Blocks] = field(default_factory=list)

    def add(self, node: fx.Node, neutral: NeutralOperands | None, pieces: fx.Graph, inside: PaddedCalls) -> None:
        """Notes how a composite is changed: its operands, if that is enough, else operands ``inside`` its pieces."""
        if neutral is not None:
            self.fills[node] = neutral.fills
            self.masks.update({} if neutral.mask is None else {node: neutral.mask})
        else:
            self.pieces.update({node: pieces, **inside.pieces})
            self.fills.update(inside.fills)
            self.masks.update(inside.masks)


def why_not_padded(gm: fx.GraphModule, symbol: str, sizes: Mapping[str, SizeRange]) -> str | None:
    """A sentence about the first call whose results would differ if the size ``symbol`` were larger, within its bounds
    in ``sizes``; None if there is no such call. A symbol that is not in ``sizes`` has no bounds.
    """
    proof = _Proof(symbol, sizes)
    if (why := proof.why_not(gm.graph)) is not None:
        return why
    several = any(any(proof.of(node).blocks) for node in gm.graph.output_node().all_input_nodes)
    return "It returns a dimension that is made of several." if several else None


def padded_calls(
    gm: fx.GraphModule, symbol: str, sizes: Mapping[str, SizeRange], masks: Collection[str] = ()
) -> PaddedCalls | str:
    """What has to be changed so that no result differs if the size ``symbol`` is larger; or, as ``why_not_padded``, a
    sentence about a call that no change would help. The placeholders in ``masks`` are not padded.
    """
    whys = list[str]()
    for blocked in (False, True):  # inputs may have a dimension that another part has made of several
        changed = PaddedCalls()
        proof = _Proof(symbol, sizes, changed, masks, blocked)
        if (why := proof.why_not(gm.graph)) is None:
            changed.inputs.update({n.name: proof.of(n).blocks for n in gm.graph.find_nodes(op="placeholder")})
            results = _results(gm.graph)
            changed.outputs.extend(proof.of(r).blocks if isinstance(r, fx.Node) else () for r in results)
            return changed
        whys.append(why)
    return whys[0]


@dataclass(frozen=True)
class _Proof:
    """The proof for one graph and one size."""

    symbol: str
    sizes: Mapping[str, SizeRange]
    changed: PaddedCalls | None = None
    masks: Collection[str] = ()
    blocked: bool = False
    known: Known = field(default_factory=dict)

    def behind_input(self, node: fx.Node) -> Behind:
        """What is known of an input: it is padded with zeros, or with the element that it repeats along the size. If
        inputs are ``blocked``, a dimension of several times the size is made of several.
        """
        type = type_of(node.meta["val"])
        if not isinstance(type, TensorType):
            return Behind(ZERO)
        repeats = [step == 0 for n, step in zip(type.shape, type.strides, strict=True) if self.mentions(n)]
        if any(repeats):
            return Behind(constant=all(repeats))
        blocks = tuple(map(self.block, type.shape)) if self.blocked else ()
        return Behind(ZERO, blocks=blocks if any(blocks) else ())

    def block(self, dim: Dim) -> Dim | None:
        """The size, if a dimension is a multiple of it."""
        if isinstance(dim, int) or not dim.is_Mul:
            return None
        return next((s for s in dim.args if s.is_Symbol and str(s) == self.symbol), None)

    def of(self, node: fx.Node) -> Behind:
        """What is known of a value."""
        return self.known.get(node, (Behind(),))[0]

    def why_not(self, graph: fx.Graph) -> str | None:
        """Why the results of a graph differ at a larger size."""
        for node in graph.find_nodes(op="placeholder"):
            self.known[node] = (Behind() if node.name in self.masks else self.behind_input(node),)
        return self.why_not_calls(graph)

    def why_not_calls(self, graph: fx.Graph) -> str | None:
        """Why the results of a call of a graph differ, of whose placeholders it is known what is behind them."""
        for node in graph.nodes:
            if node.op == "get_attr":
                return "It calls a graph of its own."
            if node.target is operator.getitem and node.args[0] in self.known:
                self.known[node] = (self.known[node.args[0]][node.args[1]],)
            call = call_of(node) if node.op == "call_function" else None
            if call is not None and (why := self.why_not_call(node, call)) is not None:
                return f"{call.name} {why}"
        return None

    def why_not_call(self, node: fx.Node, call: Call) -> str | None:
        if not any(map(self.mentions, leaves((*call.args, *call.kwargs.values(), *call.out)))):
            return None
        if is_random(call.op) and not draws_nothing(node):
            return "draws random numbers, of which a larger tensor takes more."
        if (has_effect(call.op) and not is_random(call.op)) or not is_overload(call.op):
            return "has an effect, or calls a graph of its own."
        if not all(grows(dim) for t in call.out if isinstance(t, TensorType) for dim in t.shape):
            return "has a result that may be smaller where the size is larger."
        host = HostNumbers()
        definition = lower(call, host)
        if host.by_name:
            return "has sizes that kernels cannot compute."
        operands = [n for n in leaves([list(node.args), list(node.kwargs.values())]) if isinstance(n, fx.Node)]
        if not isinstance(definition, LoopDefinition):
            return self.why_not_pieces(node, call, operands)
        tensors = [n for n in operands if isinstance(n.meta.get("val"), torch.Tensor)]
        known = [(type, self.of(n)) for type, n in zip(call.tensors, tensors, strict=True)]
        fills: dict[tuple[int, int], Fill] | None = None if self.changed is None else {}
        loops = LoopProof(self.mentions, self.sizes, definition, known, fills)
        if (why := loops.why_not()) is not None:
            return why
        self.known[node] = loops.results(call.out)
        if self.changed is not None and fills:
            self.changed.fills[node] = tuple(fills.values())
        return None

    def why_not_pieces(self, node: fx.Node, call: Call, operands: Sequence[fx.Node]) -> str | None:
        """Why the decomposition of a composite is not the same at a larger size."""
        decomposition = decomposition_of(call.op)
        if decomposition is None:
            return "has no loop form that says how it depends on the size."
        try:
            pieces = decompose_call(node, decomposition, fake_mode_of_value(node.meta["val"]))
        except NotRecorded:
            return "cannot be decomposed."
        placeholders = pieces.find_nodes(op="placeholder")
        inside = None if self.changed is None else PaddedCalls()
        known: Known = {p: (self.of(n),) for p, n in zip(placeholders, operands, strict=True)}
        inner = replace(self, changed=inside, known=known)
        if (why := inner.why_not_calls(pieces)) is not None:
            return f"is made of calls, of which {why}"
        if self.changed is not None and inside is not None and inside.fills:
            self.changed.add(
                node, neutral_operands(node, call, self.mentions, lambda n: self.of(n).blocks), pieces, inside
            )
        self.known[node] = tuple(inner.of(r) if isinstance(r, fx.Node) else Behind() for r in _results(pieces))
        return None

    def mentions(self, value: Any) -> bool:
        """True if a type, a size or a number depends on the size."""
        if isinstance(value, TensorType):
            return self.symbol in value.symbols
        expr = value.expr if isinstance(value, SymType) else value
        return isinstance(expr, sympy.Basic) and any(str(s) == self.symbol for s in expr.free_symbols)


def _results(graph: fx.Graph) -> Sequence[Any]:
    results = graph.output_node().args[0]
    return results if isinstance(results, tuple | list) else (results,)


def padded(x: torch.Tensor, type: TensorType) -> torch.Tensor:
    """A tensor of a type of known sizes and strides, with ``x`` in the first elements of each dimension and 0
    elsewhere. Along a dimension with stride 0 all elements are the first one of ``x``.
    """
    once = [1 if step == 0 and n > 1 else n for n, step in zip(type.shape, type.strides, strict=True)]
    result = torch.empty_strided(once, type.strides, dtype=x.dtype, device=x.device).zero_()
    first = tuple(slice(0, min(n, m)) for n, m in zip(once, x.shape, strict=True))
    result[first].copy_(x[first])
    return result.expand(type.shape)


def cut(x: torch.Tensor, type: TensorType) -> torch.Tensor:
    """The first elements of each dimension of ``x``, in a tensor of a type of known sizes and strides."""
    return with_strides(x[tuple(slice(0, n) for n in type.shape)], type.strides)


def resized(x: torch.Tensor, blocks: Blocks, before: Mapping[str, int], after: Mapping[str, int]) -> torch.Tensor:
    """``x`` with each of its blocks cut off or padded with zeros: they have the size that they have for the sizes
    ``before``, and get that for the sizes ``after``. Dimensions without blocks stay.
    """
    for dim, block in enumerate(blocks):
        if block is None:
            continue
        old, new = (int(evaluate(block, sizes)) for sizes in (before, after))
        if old != new:
            each = x.unflatten(dim, (x.shape[dim] // old, old))
            each = pad(each, [0] * 2 * (x.dim() - 1 - dim) + [0, new - old])  # fewer, if that is negative
            x = each.flatten(dim, dim + 1)
    return x
