"""Contract programs about gradients: which there are, what they add up from, where they stop."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter

gradients = Chapter("gradients")


def two(ctx: Context) -> list[Tensor]:
    return [ctx.ints(4, 5), ctx.ints(4, 5)]


for _name, _fn, _args, _smoke in (
    ("product", lambda a, b: a * b + a, two, True),
    ("broadcast", lambda a, b: a * b, lambda ctx: [ctx.ints(4, 1, 5), ctx.ints(3, 1)], False),
    ("matmul", lambda a, b: a @ b, lambda ctx: [ctx.ints(4, 5), ctx.ints(5, 3)], False),
    ("relu", lambda a, b: F.relu(a - b) * b, two, False),
    ("where", lambda a, b: torch.where(a > b, a * 2, b * 3), two, False),
    ("reduced", lambda a, b: ((a * b).sum(0), a.amax(1) + b.sum()), lambda ctx: [distinct(ctx), ctx.ints(4, 5)], False),
    ("losses", lambda a, b: ((a * b).sum(), (a - b).square().sum() / 2, a.relu().sum() * 3), two, True),
    ("views", lambda a, b: a.t()[1:3] @ b[:, ::2], two, False),
    ("cat-and-slices", lambda a, b: torch.cat([a, b * 2], 1)[:, 2:7], two, False),
    ("indexed", lambda a, b: a[torch.tensor([0, 2, 2, 3], device=a.device)] * b, two, False),
    ("cumulative", lambda a, b: a.cumsum(1) * b, two, False),
    ("padded", lambda a, b: F.pad(a, (1, 2)) * F.pad(b, (0, 3)), two, False),
    ("written-inside", lambda a, b: (a * 1).add_(b).mul_(b), two, False),
):
    gradients.function(f"of-{_name}", ["C1"], _fn, _args, gradients=True, smoke=_smoke)
gradients.function(
    "of-embedding",
    ["C1", "C3"],
    lambda w, i: F.embedding(i, w),
    lambda ctx: [ctx.ints(7, 3), ctx.indices(7, 4, 2)],
    gradients=True,
)
gradients.function(
    "of-convolution",
    ["C1"],
    lambda x, w, b: F.conv2d(x, w, b, stride=2),
    lambda ctx: [ctx.ints(2, 3, 7, 7), ctx.ints(4, 3, 3, 3), ctx.ints(4)],
    gradients=True,
)


def written_through_views(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Backward of such a write copies the gradient into fresh memory. Where there are convolutions, compilers choose
    layouts and remove copies.
    """
    joined = torch.cat([x, F.conv2d(x, w, padding=1)], 1)
    entire = joined[:, :7]
    entire += joined.sum(0)
    part = (x * 2)[:, 1:]
    part *= F.conv2d(x, w, padding=1)[:, :2]
    return entire, part


gradients.function(
    "of-writes-through-views-beside-convolutions",
    ["C1"],
    written_through_views,
    lambda ctx: [ctx.ints(2, 3, 5, 5), ctx.ints(4, 3, 3, 3)],
    gradients=True,
    smoke=True,
)
gradients.function(
    "of-pooling",
    ["C1"],
    lambda x: F.max_pool2d(x, 2),
    lambda ctx: [ctx.permutation(144).view(2, 2, 6, 6).to(ctx.dtype)],
    gradients=True,
)
gradients.function("unused-argument", ["C2"], lambda a, b: a * 3, two, gradients=True, smoke=True)
gradients.function("unused-but-returned", ["C2", "C1"], lambda a, b: (a * 2, b), two, gradients=True)
gradients.function("only-compared", ["C2"], lambda a, b: torch.where(b > 0, a, -a), two, gradients=True)
gradients.function(
    "used-twice",
    ["C3"],
    lambda x: x * x + x.sum(0) * 2 + x[0],
    lambda ctx: [ctx.ints(3, 4)],
    gradients=True,
    smoke=True,
)
gradients.function("detached", ["C7", "C5"], lambda a, b: (a.detach() * b, (a * b).detach()), two, gradients=True)
gradients.function(
    "integers-among-arguments",
    ["C5"],
    lambda x, i: (x * i, i + 1, i.to(x.dtype)),
    lambda ctx: [ctx.ints(5), ctx.ints(5, dtype=torch.int64)],
    gradients=True,
)


def distinct(ctx: Context) -> Tensor:
    """Integers without ties, so that a maximum has one place."""
    return ctx.permutation(20).view(4, 5).to(ctx.dtype)


@gradients("C2", "C5")
def requires_no_gradient(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a * b, a + 1, b + 1))
    for call in ctx.rounds():
        a, b = two(ctx)
        (a if call % 2 else b).requires_grad_()
        ctx.backward(ctx.run(go, a, b), [a, b])


@gradients("C3")
def same_tensor_as_two_arguments(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: a * b * 2)
    for _ in ctx.rounds():
        x = ctx.ints(5).requires_grad_()
        ctx.backward([ctx.run(go, x, x)], [x])


@gradients("C4")
def accumulated(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: a * b)
    a, b = (x.requires_grad_() for x in two(ctx))
    for _ in ctx.rounds():
        ctx.backward([ctx.run(go, a, b)], [a, b], clause="contract.gradients.C4")


@gradients("C6", smoke=True)
def result_left_out(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a * b, a + b, b * 3 - a))
    for call in ctx.rounds():
        a, b = (x.requires_grad_() for x in two(ctx))
        results = ctx.run(go, a, b)
        ctx.backward([results[call % 3]], [a, b], clause="contract.gradients.C6")


@gradients("C7")
def region_without_gradients(ctx: Context) -> None:
    def fn(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            c = a * b
        return c + a, c

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        a, b = (x.requires_grad_() for x in two(ctx))
        ctx.backward(ctx.run(go, a, b)[:1], [a, b], clause="contract.gradients.C7")


@gradients("C8")
def backward_twice(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a * b).relu() * b)
    for _ in ctx.rounds():
        a, b = (x.requires_grad_() for x in two(ctx))
        results, tangent = ctx.run(go, a, b), ctx.ints(4, 5)
        for time in range(2):
            grads = torch.autograd.grad(results, [a, b], tangent, retain_graph=time == 0)
            ctx.record(f"gradients, time {time}", grads, "contract.gradients.C8", strides=False)


@gradients("C8", "calls.C2", smoke=True)
def backward_twice_of_a_product_that_is_a_result(ctx: Context) -> None:
    """The product is saved, since it is not computed again for the backward pass. It is also a result, and has the type
    of the gradients.
    """
    go = ctx.compile(lambda x, w: (z := x @ w, z * z))
    for _ in ctx.rounds():
        x, w = (ctx.ints(5, 5).requires_grad_() for _ in range(2))
        results, tangents = ctx.run(go, x, w), [ctx.ints(5, 5) for _ in range(2)]
        for time in range(2):
            grads = torch.autograd.grad(results, [x, w], tangents, retain_graph=time == 0)
            ctx.record(f"gradients, time {time}", grads, "contract.gradients.C8", strides=False)


@gradients("C1", "layouts.C3", smoke=True)
def one_number_as_incoming_gradient(ctx: Context) -> None:
    """A sum outside of the program gives each element the gradient 1, and later ones that are scaled another one."""
    go = ctx.compile(lambda a, b: a * b)
    for call in ctx.rounds():
        a, b = (x.requires_grad_() for x in two(ctx))
        loss = ctx.run(go, a, b).sum() * (call + 1)
        ctx.record("gradients", torch.autograd.grad(loss, [a, b]), strides=False)


@gradients("C8")
def backward_thrice_in_parts(ctx: Context) -> None:
    """What the forward pass saved serves each of them."""
    go = ctx.compile(lambda a, b: ((a * b).relu() * b, (a @ b.t()).cumsum(0) * 2, (a + b).square().sum(1)))
    for _ in ctx.rounds():
        a, b = (x.requires_grad_() for x in two(ctx))
        results = ctx.run(go, a, b)
        tangents = [ctx.ints(*x.shape) for x in results]
        for k in (1, 0, 2, 0):
            grads = torch.autograd.grad(results[k], [a, b], tangents[k], retain_graph=True)
            ctx.record(f"gradients of {k}", grads, "contract.gradients.C8", strides=False)


@gradients("C1")
def asked_of_one(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: ((a * b).sum(0), b * 2 + a))
    for _ in ctx.rounds():
        a, b = (x.requires_grad_() for x in two(ctx))
        product, double = ctx.run(go, a, b)
        ctx.record("gradient of b", torch.autograd.grad(product.sum(), [b], retain_graph=True), strides=False)
        ctx.record("gradient of both", torch.autograd.grad(double.sum(), [b, a]), strides=False)


@gradients("C1")
def chained_programs(ctx: Context) -> None:
    first, second = ctx.compile(lambda x, w: (x @ w).relu()), ctx.compile(lambda y, w: y * w + y)
    for _ in ctx.rounds():
        x, w, v = ctx.ints(4, 5).requires_grad_(), ctx.ints(5, 3).requires_grad_(), ctx.ints(3).requires_grad_()
        ctx.backward([ctx.run(second, ctx.run(first, x, w), v)], [x, w, v])


@gradients("C1")
def into_what_is_not_a_leaf(ctx: Context) -> None:
    go = ctx.compile(lambda x, y: (x * y, x - y))
    for _ in ctx.rounds():
        x, y = (v.requires_grad_() for v in two(ctx))
        ctx.backward(ctx.run(go, x * 2, y.t().contiguous().t()), [x, y])


@gradients("C1", "C4")
def interleaved_passes(ctx: Context) -> None:
    """Forward twice, then backward in the other order: each has what its own forward pass saved."""
    go = ctx.compile(lambda x, w: (x * w).relu() * w)
    for _ in ctx.rounds():
        w = ctx.ints(6).requires_grad_()
        first, second = (ctx.run(go, ctx.ints(6), w) for _ in range(2))
        for name, results in (("second", second), ("first", first)):
            ctx.record(name, torch.autograd.grad(results, [w], ctx.ints(6)), strides=False)


@gradients("C1")
def saved_values_stay(ctx: Context) -> None:
    """Between forward and backward other calls run, and memory is used again."""
    go = ctx.compile(lambda x, w: (x + 1) * w)
    for _ in ctx.rounds():
        x, w = ctx.ints(7), ctx.ints(7).requires_grad_()
        result = ctx.run(go, x, w)
        del x
        for _ in range(3):
            ctx.run(go, ctx.ints(7), w)
        ctx.record("gradient", torch.autograd.grad(result, [w], torch.ones(7, dtype=ctx.dtype)), strides=False)


@gradients("C1", "C4")
def hooks_hear_gradients(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: a * b)
    for _ in ctx.rounds():
        a, b = (x.requires_grad_() for x in two(ctx))
        incoming: list[Tensor] = []
        a.register_hook(incoming.append)
        ctx.backward([ctx.run(go, a, b)], [a, b])
        ctx.record("heard", incoming, strides=False)
