"""Benign variants: backends that compute otherwise than eager PyTorch and keep every clause. None may fail."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from keel import Backend, Call, Rule, Support
from keel.opset import MEMBERS
from keel.testing import find
from keel_conformance.pytree import tensor_leaves
from keel_foreign import foreign, untraceable

from .mutant import Mutant, backend_of, reference, sentence, slug
from .mutants.reductions import dims_of
from .rewiring import Change, packet, rewired, run, run_eager, with_layout_of

ALL = ("*",)


def replacing(*calls: str, programs: tuple[str, ...] = ()) -> Callable[[Change], Mutant]:
    """Makes a variant of what is done in place of operators."""

    def made(change: Change) -> Mutant:
        name = slug(change)
        return Mutant(
            name,
            "benign",
            (),
            sentence(change),
            reference(change),
            backend_of(name, rewired(calls, change), "benign"),
            calls,
            programs,
        )

    return made


def compiled(compile: Callable[[fx.GraphModule], Callable[..., Any]]) -> Mutant:
    """Makes a variant of a function that compiles parts."""
    name = slug(compile)
    return Mutant(
        name, "benign", (), sentence(compile), reference(compile), backend_of(name, compile, "benign"), ALL, ALL
    )


def variant_of_backend(backend: Callable[[], Backend]) -> Mutant:
    """Makes a variant of a backend that is made otherwise."""
    name = slug(backend)
    return Mutant(name, "benign", (), sentence(backend), reference(backend), backend(), ALL, ALL)


# -- orders of summation -----------------------------------------------------------------------------------------------


def reduced(x: Tensor, dim: Any, keepdim: bool, fold: Callable[[Tensor, int], Tensor]) -> Tensor:
    axes = dims_of(x, dim)
    for d in axes if x.dim() else ():
        x = fold(x, d)
    return x if keepdim else x.reshape([n for d, n in enumerate(x.shape) if d not in axes])


def floats(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in (torch.float32, torch.float64)


@replacing("aten.sum")
def sum_in_reverse(op: Any, x: Tensor, dim: Any = None, keepdim: bool = False, **kw: Any) -> Any:
    """Sums of floats go one after another, from the last."""
    if not floats(x) or kw or not x.dim() or not x.numel():
        return op(x, *([] if dim is None else [dim, keepdim]), **kw)

    def fold(y: Tensor, d: int) -> Tensor:
        result = torch.zeros_like(y.select(d, 0))
        for part in reversed(y.unbind(d)):
            result = result + part
        return result.unsqueeze(d)

    return reduced(x, dim, keepdim, fold) if max(x.shape) <= 4096 else op(x, *([] if dim is None else [dim, keepdim]))


@replacing("aten.sum")
def sum_in_pairs(op: Any, x: Tensor, dim: Any = None, keepdim: bool = False, **kw: Any) -> Any:
    """Sums of floats go by halves."""
    if not floats(x) or kw or not x.dim() or not x.numel():
        return op(x, *([] if dim is None else [dim, keepdim]), **kw)

    def fold(y: Tensor, d: int) -> Tensor:
        while (n := y.shape[d]) > 1:
            half = n // 2
            pairs = y.narrow(d, 0, half) + y.narrow(d, half, half)
            y = torch.cat([pairs, y.narrow(d, 2 * half, n % 2)], d)
        return y.clone() if y is x else y  # of one element, too, the sum has memory of its own

    return reduced(x, dim, keepdim, fold)


@replacing("aten.sum", "aten.mean", "aten.nansum")
def sum_in_float64(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """Sums are taken in float64."""
    wide = x.is_floating_point() and kw.get("dtype") is None
    return op(x.double(), *args, **kw).to(op(x, *args, **kw).dtype) if wide else op(x, *args, **kw)


@replacing("aten.mm", "aten.bmm")
def products_one_after_another(op: Any, a: Tensor, b: Tensor, *more: Any) -> Any:
    """Products of matrices add one outer product after another."""
    if not floats(a) or more or not a.shape[-1] or a.shape[-1] > 512:
        return op(a, b, *more)
    result = a[..., :, :1] * b[..., :1, :]
    for k in range(1, a.shape[-1]):
        result = result + a[..., :, k : k + 1] * b[..., k : k + 1, :]
    return result


@replacing("aten.mm", "aten.bmm")
def products_fused(op: Any, a: Tensor, b: Tensor, *more: Any) -> Any:
    """Products of matrices add by fused multiply-add, from the last."""
    if a.dtype != torch.float32 or more or not a.shape[-1] or a.shape[-1] > 512:
        return op(a, b, *more)
    result = torch.zeros_like(op(a, b))
    for k in reversed(range(a.shape[-1])):  # a product of two float32 is exact in float64
        result = (result.double() + a[..., :, k : k + 1].double() * b[..., k : k + 1, :].double()).float()
    return result


@replacing("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten.mv", "aten.dot", "aten.convolution")
def products_in_float64(op: Any, *args: Any, **kw: Any) -> Any:
    """Sums of products are taken in float64."""
    parts = tensor_leaves(list(args))
    if not all(floats(x) for x in parts):
        return op(*args, **kw)
    return op(*(x.double() if isinstance(x, Tensor) else x for x in args), **kw).to(parts[0].dtype)


@replacing("aten.mm", "aten.addmm")
def products_in_blocks(op: Any, *args: Any, **kw: Any) -> Any:
    """Products of matrices are summed in blocks of 3 of the inner dimension."""
    a, b = args[-2:] if isinstance(args[-1], Tensor) else args[-3:-1]
    like = op(*args, **kw)
    if not floats(a) or not a.shape[1] or len(args) not in (2, 3) or not isinstance(args[-1], Tensor):
        return like
    result = sum(torch.mm(x, y) for x, y in zip(a.split(3, 1), b.split(3, 0), strict=True))
    if len(args) == 2:
        return result
    beta = kw.get("beta", 1)
    return kw.get("alpha", 1) * result + (beta * args[0] if beta != 0 else 0)


@replacing("aten.convolution")
def convolution_by_products(op: Any, x: Tensor, w: Tensor, bias: Any, *args: Any) -> Any:
    """A convolution in two dimensions is a product of matrices, of columns of windows."""
    stride, padding, dilation, transposed, _, groups = args
    if not floats(x) or transposed or groups != 1 or x.dim() != 4 or len(stride) != 2 or not x.numel():
        return op(x, w, bias, *args)
    columns = torch.nn.functional.unfold(x, w.shape[2:], dilation, padding, stride)
    result = w.flatten(1) @ columns
    result = result if bias is None else result + bias[:, None]
    return result.reshape(op(x, w, bias, *args).shape)


@replacing("aten.cumsum")
def cumsum_in_float64(op: Any, x: Tensor, dim: int, **kw: Any) -> Any:
    """Running sums are taken in float64."""
    return op(x.double(), dim).to(x.dtype) if x.is_floating_point() and not kw else op(x, dim, **kw)


@replacing("aten.scatter_add", "aten.index_add")
def additions_in_another_order(op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor, **kw: Any) -> Any:
    """What is added to one place is added from the last."""
    if not at.dim() or not values.dim():
        return op(x, dim, at, values, **kw)
    if at.dim() == values.dim() == x.dim() and "alpha" not in kw and at.dim() != 1:
        values = values[tuple(slice(n) for n in at.shape)]
        return op(x, dim, at.flip(dim), values.flip(dim))
    if at.dim() == 1 and at.shape[0] == values.shape[dim]:
        return op(x, dim, at.flip(0), values.flip(dim), **kw)
    return op(x, dim, at, values, **kw)


# -- other formulas ----------------------------------------------------------------------------------------------------

POINTWISE = (
    "aten.exp",
    "aten.log",
    "aten.sin",
    "aten.cos",
    "aten.tanh",
    "aten.sigmoid",
    "aten.sqrt",
    "aten.rsqrt",
    "aten.erf",
    "aten.log1p",
    "aten.expm1",
    "aten.gelu",
    "aten.silu",
    "aten.softplus",
    "aten.atan2",
    "aten.pow",
    "aten.div",
    "aten.reciprocal",
    "aten._softmax",
    "aten._log_softmax",
    "aten.logsumexp",
)


@replacing(*POINTWISE)
def higher_precision(op: Any, *args: Any, **kw: Any) -> Any:
    """Floats are computed in float64 and rounded once."""
    like = op(*args, **kw)
    if not all(x.is_floating_point() for x in tensor_leaves(list(args))) or not like.is_floating_point():
        return like
    return op(*(x.double() if isinstance(x, Tensor) else x for x in args), **kw).to(like.dtype)


@replacing("aten.sub", "aten.rsub")
def sub_by_negation(op: Any, *args: Any, **kw: Any) -> Any:
    """A difference is the sum with the negated operand."""
    x, y = args[:2]
    plain = floats(x) and floats(y) and x.dtype == y.dtype and not kw and len(args) == 2 and "rsub" not in str(op)
    return x + (-y) if plain else op(*args, **kw)


@replacing("aten._softmax")
def softmax_in_steps(op: Any, x: Tensor, dim: int, half: bool) -> Any:
    """``softmax`` is a maximum, an exponential, a sum and a quotient of its own."""
    if not floats(x) or not x.numel():
        return op(x, dim, half)
    top = x.amax(dim, keepdim=True)
    parts = torch.exp(x - top)
    return parts / parts.sum(dim, keepdim=True)


@replacing("aten.native_layer_norm")
def layer_norm_in_float64(op: Any, x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """``layer_norm`` is computed in float64."""
    like = op(x, shape, weight, bias, eps)
    wide = [v.double() if isinstance(v, Tensor) else v for v in (weight, bias)]
    return tuple(a.to(b.dtype) for a, b in zip(op(x.double(), shape, *wide, eps), like, strict=True))


@replacing("aten.var")
def var_in_two_passes(op: Any, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """``var`` takes the mean first, then the mean of squared deviations."""
    like = op(x, dim, correction=correction, keepdim=keepdim)
    n = x.numel() / max(like.numel(), 1)
    free = n - (1 if correction is None else correction)
    if not floats(x) or not x.dim() or free <= 0:
        return like
    axes = dims_of(x, dim)
    return (x - x.mean(axes, keepdim=True)).square().sum(axes, keepdim=keepdim) / free


@replacing("aten.sigmoid")
def sigmoid_by_halves(op: Any, x: Tensor) -> Any:
    """``sigmoid`` has a form for each sign."""
    if not floats(x):
        return op(x)
    small = torch.exp(-x.abs())
    return torch.where(x >= 0, 1 / (1 + small), small / (1 + small))


# -- what clauses leave free -------------------------------------------------------------------------------------------


@replacing("aten.maximum", "aten.minimum")
def zeros_of_the_other_sign(op: Any, x: Tensor, y: Tensor) -> Any:
    """Of +0 and -0 ``maximum`` and ``minimum`` give the second operand's."""
    return torch.where((x == 0) & (y == 0), y, op(x, y))


@replacing("aten.add", "aten.mul", "aten.exp", "aten.amax", "aten.sum", "aten.maximum")
def nan_of_other_bits(op: Any, *args: Any, **kw: Any) -> Any:
    """NaN has another payload, and the other sign."""
    result = op(*args, **kw)
    if not isinstance(result, Tensor) or result.dtype != torch.float32:
        return result
    other = torch.tensor(-0x3FEDCB, dtype=torch.int32).view(torch.float32)
    return torch.where(result.isnan(), other, result) if bool(other.isnan()) else result


@replacing("aten.topk")
def topk_of_other_ties(op: Any, x: Tensor, k: int, dim: int = -1, largest: bool = True, ordered: bool = True) -> Any:
    """Of equal elements ``topk`` takes the last."""
    if not x.dim() or not x.numel():
        return op(x, k, dim, largest, ordered)
    values, at = op(x.flip(dim), k, dim, largest, ordered)
    return values, x.shape[dim] - 1 - at


@replacing("aten.empty", "aten.empty_strided", "aten.empty_like", "aten.new_empty", "aten.new_empty_strided")
def memory_of_other_values(op: Any, *args: Any, **kw: Any) -> Any:
    """Memory that nobody has written to holds ones."""
    return op(*args, **kw).fill_(1)


# -- how parts are run -------------------------------------------------------------------------------------------------


@compiled
def row_major_inside(gm: fx.GraphModule) -> Callable[..., Any]:
    """Results are computed row-major, and given the strides that are promised at the end."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        like = run_eager(node, args, kwargs)
        if not pointwise(node) or not isinstance(like, Tensor):
            return like
        dense = fx.node.map_aggregate(tuple(args), lambda x: x.contiguous() if isinstance(x, Tensor) else x)
        return with_layout_of(node.target(*dense, **kwargs), like)  # type: ignore[operator]

    return lambda *inputs: run(gm, inputs, do)


@compiled
def in_blocks(gm: fx.GraphModule) -> Callable[..., Any]:
    """What is computed element by element is computed in blocks of 7."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        like = run_eager(node, args, kwargs)
        parts = tensor_leaves(list(args))
        same_shapes = (
            isinstance(like, Tensor)
            and parts
            and all(p.shape == like.shape for p in parts)
            and len(parts) == sum(isinstance(a, Tensor) for a in args)
            and not any(isinstance(v, Tensor) for v in kwargs.values())
        )
        if not pointwise(node) or not same_shapes or not 7 < like.numel() <= 4096:
            return like
        if kwargs.get("memory_format") in (torch.channels_last, torch.channels_last_3d):
            return like  # which no flat block can have
        flat = [a.reshape(-1) if isinstance(a, Tensor) else a for a in args]
        results = [
            node.target(*(a[k : k + 7] if isinstance(a, Tensor) else a for a in flat), **kwargs)  # type: ignore[operator]
            for k in range(0, like.numel(), 7)
        ]
        return with_layout_of(torch.cat(results).reshape(like.shape), like)

    return lambda *inputs: run(gm, inputs, do)


@compiled
def last_things_first(gm: fx.GraphModule) -> Callable[..., Any]:
    """Operators run in another order: what is needed last comes first where it may."""

    def call(*inputs: Any) -> Any:
        held, values = iter(inputs), dict[fx.Node, Any]()

        def value(node: fx.Node) -> Any:
            if node not in values:
                for before in reversed(node.all_input_nodes):
                    value(before)
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            return values[node]

        for node in gm.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(held)
            elif node.op == "get_attr":
                values[node] = getattr(gm, str(node.target))
        drawing = [n for n in gm.graph.nodes if n.op == "call_function" and impure(n)]
        for node in drawing:  # random numbers, effects and collectives keep their order
            value(node)
        (end,) = gm.graph.find_nodes(op="output")
        for node in reversed(end.all_input_nodes):
            value(node)
        return fx.map_arg(end.args[0], values.__getitem__)

    return call


@compiled
def in_two_halves(gm: fx.GraphModule) -> Callable[..., Any]:
    """A part is run as two, between which all that lives is copied."""
    nodes = [n for n in gm.graph.nodes if n.op == "call_function" and not viewing(n) and not awaiting(n)]
    middle = nodes[len(nodes) // 2] if nodes else None

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if node is middle:
            args = fx.node.map_aggregate(tuple(args), lambda x: x.clone() if isinstance(x, Tensor) and dense(x) else x)
        return run_eager(node, args, kwargs)

    return lambda *inputs: run(gm, inputs, do)


@variant_of_backend
def composites_written_out() -> Backend:
    """Composites are left to Keel, which writes them out in primitives."""
    composite = {str(t) for op in MEMBERS.values() if op.kind == "composite" for t in op.targets}

    def supports(call: Call) -> str | None:
        return f"{call.name} is a composite." if call.name in composite else None

    return Backend(name="benign-composites-written-out", device="cpu", supports=supports, compile=lambda gm: gm.forward)


@variant_of_backend
def functional_again() -> Backend:
    """Parts are compiled by PyTorch's ``aot_eager``, but for calls that it compiles wrongly."""
    rule = Rule(ops=("*",), when=lambda call: miscompiled(call) or untraceable(call))
    return replace(foreign("aot_eager", device="cpu"), supports=Support((rule,)))


def miscompiled(call: Call) -> str | None:
    """What ``aot_eager`` does wrongly with a call: docs/findings.md has a script for each."""
    match call.name.split(".")[1:]:
        case ["_batch_norm_no_update" | "_batch_norm_with_update" | "_batch_norm_with_update_functional", _]:
            lacks = any(v is None for v in call.args[1:3])
            return f"{call.name} raises there without a weight or a bias." if lacks else None
        case ["_fft_c2c", _]:
            mixed = list(call.args[1]) != sorted(call.args[1])
            return "The fake kernel of PyTorch 2.11 forgets the order of a transform's dimensions." if mixed else None
        case ["_foreach_addcmul" | "_foreach_addcdiv", "Tensor"]:
            return f"{call.name} raises there: it wants its scalars on the host."
        case ["lift_fresh_copy", _]:
            return "What aten.lift_fresh_copy copies has the operand's strides there."
        case ["multi_margin_loss", _]:
            alone = len(call.tensors[0].shape) < 2
            return "The multi_margin_loss of a single example has a dimension there." if alone else None
        case ["multilabel_margin_loss_forward", _]:
            return "Classes after the first -1 count there as targets of multilabel_margin_loss."
    return None


@variant_of_backend
def interpreted() -> Backend:
    """Parts are lowered to loops, which are interpreted."""
    result: Backend = find("interp")
    return result


def pointwise(node: fx.Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) and not impure(node)


def impure(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags or any(
        part in packet(node) for part in ("assert", "bernoulli", "c10d")
    )


def dense(x: Tensor) -> bool:
    """Whether ``clone`` keeps the strides."""
    return x.clone().stride() == x.stride()


def viewing(node: fx.Node) -> bool:
    return bool(getattr(node.target, "is_view", False))


def awaiting(node: fx.Node) -> bool:
    """Whether an argument may be a collective's result on its way: only waiting for it, and taking it out of a list,
    may come before it is there, and a copy of it would not be waited for.
    """
    return node.target is operator.getitem or packet(node) == "_c10d_functional.wait_tensor"
