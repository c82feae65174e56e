"""Contract programs about what changes from call to call: sizes, dtypes, modes, models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .context import Context
from .program import Chapter, bound

shapes, dtypes, modes, several = Chapter("shapes"), Chapter("dtypes"), Chapter("modes"), Chapter("models")

# -- sizes -------------------------------------------------------------------------------------------------------------

SIZES = (
    (5, 7),
    (9, 7),
    (19, 35),
    (1, 7),
    (0, 7),
    (17, 1),
    (1, 1),
    (33, 16),
    (2, 0),
    (16, 33),
    (8, 8),
    (64, 65),
    (4, 3),
)
FEW = (3, 2)
"""Less than a vector, and neither none nor one, for which programs are compiled apart."""
BODIES: dict[str, tuple[Callable[..., Any], Callable[[Context, int, int], list[Tensor]], bool]] = {
    "pointwise": (lambda a, b: (a * b + 1, a - b), lambda ctx, n, m: [ctx.ints(n, m), ctx.ints(m)], True),
    "reduced": (lambda a: (a.sum(0), a.sum(1, keepdim=True), a.sum()), lambda ctx, n, m: [ctx.ints(n, m)], True),
    "matmul": (lambda a, b: (a @ b).relu(), lambda ctx, n, m: [ctx.ints(n, m), ctx.ints(m, 3)], True),
    "views": (
        lambda a: (a.t(), a.reshape(-1), a[1:, ::2], a.unsqueeze(1).expand(-1, 2, -1)),
        lambda ctx, n, m: [ctx.ints(n, m)],
        True,
    ),
    "joined": (lambda a, b: torch.cat([a, b, a]), lambda ctx, n, m: [ctx.ints(n, m), ctx.ints(2 * n, m)], True),
    "padded": (lambda a: F.pad(a, (1, 2), value=3.0), lambda ctx, n, m: [ctx.ints(n, m)], True),
    "scanned": (lambda a: (a.cumsum(0), a.cumsum(1)), lambda ctx, n, m: [ctx.ints(n, m)], True),
    "size-as-number": (
        lambda a: (a * a.shape[0] + a.shape[1], a.sum(0) - a.numel()),
        lambda ctx, n, m: [ctx.ints(n, m)],
        True,
    ),
    "sizes-of-sizes": (
        lambda a: (
            torch.zeros(a.shape[0] // 2 + 1),
            torch.arange(a.shape[0] * 2, device=a.device),
            a[: a.shape[1] // 2],
        ),
        lambda ctx, n, m: [ctx.ints(n, m)],
        True,
    ),
    "of-what-is-left": (
        lambda a: (
            a[2:] * 2,
            a[2:].sum(0),
            a[:, a.shape[1] // 2 :] - 1,
            a[a.shape[0] // 2 :].t() + a.shape[0],
            F.pad(a, (0, 2))[:, 2:] + 1,
        ),
        lambda ctx, n, m: [ctx.ints(n, m)],
        True,
    ),
    "counted-by-hand": (
        lambda a: (
            a.sum(0) * 2 - a.shape[0],
            (a - a.shape[1]).relu() * (a.shape[0] + 3),
            torch.arange(a.shape[0], device=a.device)[:, None] * a.shape[1] + torch.arange(a.shape[1], device=a.device),
            a.new_full((a.shape[1] // 2 + 1,), a.shape[0] * 2 - 1),
        ),
        lambda ctx, n, m: [ctx.ints(n, m)],
        True,
    ),
    "masked": (
        lambda a: torch.where(
            torch.arange(a.shape[1], device=a.device) <= torch.arange(a.shape[0], device=a.device)[:, None], a, 0
        ),
        lambda ctx, n, m: [ctx.ints(n, m)],
        True,
    ),
    "written": (lambda a, b: (a.add_(b), a.sum(0))[1], lambda ctx, n, m: [ctx.ints(n, m), ctx.ints(m)], True),
    "indexed": (
        lambda a, i: (a[i], a.index_select(0, i)),
        lambda ctx, n, m: [ctx.ints(n + 1, m), ctx.indices(n + 1, 4)],
        True,
    ),
}


def _sizes() -> None:
    cited = {"size-as-number": "C3", "sizes-of-sizes": "C4", "of-what-is-left": "C4", "counted-by-hand": "C3"}
    for name, (fn, make, exact) in BODIES.items():
        for dynamic in (None, True):
            label = "dynamic" if dynamic else "recompiled"

            @shapes(
                "C1",
                "C2",
                cited.get(name, "C1"),
                name=f"{name}-{label}",
                exact=exact,
                smoke=bool(dynamic) and name in ("pointwise", "reduced", "size-as-number"),
            )
            def body(ctx: Context, fn: Any = fn, make: Any = make, dynamic: bool | None = dynamic) -> None:
                go = ctx.compile(fn, dynamic=dynamic)
                for n, m in sizes(ctx):
                    ctx.run(go, *make(ctx, n, m))


def sizes(ctx: Context) -> Sequence[tuple[int, int]]:
    """Sizes of its own kind first, so that the program is not compiled for a special one; then the special ones. The
    last two are the greatest with fewer rows, whose memory an earlier call has used, and with as many columns fewer:
    their sum is the same.
    """
    some = (SIZES[0], *SIZES[3:5], SIZES[1 + ctx.seed % 2], FEW) if ctx.calls < 6 else (*SIZES, FEW)
    n, m = max(some)
    return (*some, (n - 3, m), (n, m - 3))


_sizes()


@shapes("C2", "gradients.C1", profile="training", smoke=True)
def trained_at_many_sizes(ctx: Context) -> None:
    go = ctx.compile(lambda x, w: (x @ w).relu() * 2, dynamic=True)
    w = ctx.ints(4, 3).requires_grad_()
    for n in (5, 1, 8, 0, 3)[: max(ctx.calls, 4)]:
        x = ctx.ints(n, 4).requires_grad_()
        ctx.backward([ctx.run(go, x, w)], [x, w])


@shapes("C2", "gradients.C1", profile="training", smoke=True)
def passes_of_two_sizes(ctx: Context) -> None:
    """Each backward pass has the sizes of its own forward pass, whichever came last."""
    go = ctx.compile(lambda x, w: (x @ w).relu() * x.shape[0], dynamic=True)
    w = ctx.ints(4, 3).requires_grad_()
    for call in ctx.rounds():
        inputs = [ctx.ints(n + call, 4).requires_grad_() for n in (5, 8)]
        results = [ctx.run(go, x, w) for x in inputs]
        for k, (x, result) in enumerate(zip(inputs, results, strict=True)):
            grads = torch.autograd.grad(result, [x, w], ctx.ints(*result.shape))
            ctx.record(f"gradients of {k}", grads, "contract.gradients.C1", strides=False)


@shapes("C1", "calls.C1", smoke=True)
def counts_that_grow(ctx: Context) -> None:
    """The values determine how many places and elements there are: few in the first call, and more in later ones."""
    go = ctx.compile(lambda x: (x.nonzero() * 2, x.masked_select(x > 0) + 1), fullgraph=True)
    for count in (2, 5, 7, 3):
        ctx.run(go, torch.where(ctx.permutation(7) < count, ctx.ints(7, low=1), 0))


@shapes("C5")
def another_number_of_dimensions(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x * 2).sum(0))
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(*[(4,), (4, 3), (2, 3, 4)][call % 3]))


@shapes("C1", "C2")
def two_sizes_that_become_equal(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: a[:, None] * b[None, :], dynamic=True)
    for n, m in ((4, 5), (6, 6), (3, 9), (1, 1), (1, 8)):
        ctx.run(go, ctx.ints(n), ctx.ints(m))


@shapes("C2", "layouts.C2")
def strides_that_change(ctx: Context) -> None:
    go = ctx.compile(lambda x: x * 2 + 1, dynamic=True)
    for n, m in ((4, 5), (7, 3), (2, 9)):
        ctx.run(go, ctx.ints(n, m).t())
        ctx.run(go, ctx.ints(n, m + 2)[:, 1:-1])


@shapes("C1", "C2", exact=False)
def attention_of_growing_length(ctx: Context) -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v

    go = ctx.compile(fn, dynamic=True)
    for n in range(2, 3 + max(ctx.calls, 4)):
        ctx.run(go, ctx.normal(2, 1, 16), ctx.normal(2, n, 16), ctx.normal(2, n, 16))


# -- dtypes ------------------------------------------------------------------------------------------------------------

ALL = (
    torch.float32,
    torch.int32,
    torch.float64,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.uint8,
    torch.int8,
    torch.int16,
)


def _dtypes() -> None:
    for name, fn in (
        ("arithmetic", lambda a, b: (a + b, a * b, a - b)),
        ("sums", lambda a, b: (a.sum(0), (a * b).sum())),
        ("extremes", lambda a, b: (torch.maximum(a, b), a.amax(0), a > b)),
        ("division", lambda a, b: (a / (b + 8), a // (b + 8), (a + 4) % (b + 8))),
    ):

        @dtypes("C1", "C2", name=f"{name}-under-one-cache", exact=name != "division", smoke=name == "arithmetic")
        def body(ctx: Context, fn: Any = fn) -> None:
            go = ctx.compile(fn)
            for dtype in ALL[: max(ctx.calls, 6)]:
                low = 0 if dtype == torch.uint8 else -3
                ctx.run(go, *(ctx.ints(4, 5, low=low, high=4, dtype=dtype) for _ in range(2)))


_dtypes()
for _first, _second in (
    (torch.float32, torch.int64),
    (torch.float16, torch.float32),
    (torch.int32, torch.int64),
    (torch.bool, torch.int32),
    (torch.float32, torch.float64),
    (torch.bfloat16, torch.float16),
):
    _names = "-and-".join(str(d).removeprefix("torch.") for d in (_first, _second))
    dtypes.function(
        f"promoted-{_names}",
        ["C2"],
        lambda a, b: (a + b, b * a, torch.where(b > 0, a, b)),
        bound(lambda ctx, d, e: [ctx.ints(6, low=0, dtype=d), ctx.ints(6, low=0, dtype=e)], _first, _second),
    )


@dtypes("C3")
def wrapping_integers(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x * x, x + x, -x, x * 77 - 3))
    for dtype in (torch.int32, torch.int64, torch.int8, torch.uint8, torch.int16):
        info = torch.iinfo(dtype)
        x = torch.tensor([info.max, info.min, info.max - 1, 1, 0, info.max // 2 + 1], dtype=dtype)
        ctx.run(go, x.roll(ctx.seed % 5))


@dtypes("C3")
def large_integers(ctx: Context) -> None:
    """Beyond 2^53, where a detour through floats would be seen."""
    go = ctx.compile(lambda x: (x + 1, x * 3, x.sum(0), x.amax(), x // 7, x % 1000))
    for _ in ctx.rounds():
        ctx.run(go, ctx.indices(1 << 30, 5, 3) + (1 << 60))


def _tangent(ctx: Context, dtype: torch.dtype, y: Tensor) -> Tensor:
    return ctx.ints(*y.shape, low=-2, high=3, dtype=dtype)


@dtypes("C1", "gradients.C1", profile="training")
def gradients_in_each_dtype(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a * b).relu() + a)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)[: max(ctx.calls, 3)]:
        a, b = (ctx.ints(4, 5, dtype=dtype).requires_grad_() for _ in range(2))
        ctx.backward([ctx.run(go, a, b)], [a, b], partial(_tangent, ctx, dtype))


# -- modes -------------------------------------------------------------------------------------------------------------


def product(a: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return (a @ w).relu(), a * 2


@modes("C1", "C4", smoke=True)
def with_and_without_gradients(ctx: Context) -> None:
    go = ctx.compile(product)
    for call in ctx.rounds():
        a, w = ctx.ints(3, 4).requires_grad_(), ctx.ints(4, 5).requires_grad_()
        match call % 3:
            case 0:
                ctx.backward(ctx.run(go, a, w), [a, w])
            case 1:
                with torch.no_grad():
                    ctx.run(go, a, w)
            case 2:
                with torch.inference_mode():
                    ctx.run(go, a, w)


@modes("C1")
def inference_tensors_as_arguments(ctx: Context) -> None:
    go = ctx.compile(product)
    for call in ctx.rounds():
        with torch.inference_mode():
            a, w = ctx.ints(3, 4), ctx.ints(4, 5)
            ctx.run(go, a, w)
        ctx.run(go, ctx.ints(3, 4), ctx.ints(4, 5) if call else w.clone())


@modes("C1", "mutation.C2")
def writes_under_no_grad(ctx: Context) -> None:
    go = ctx.compile(lambda w, g: w.sub_(g * 2))
    w = ctx.ints(5).requires_grad_()
    for _ in ctx.rounds():
        with torch.no_grad():
            ctx.run(go, w, ctx.ints(5))


@modes("C2")
def modes_within(ctx: Context) -> None:
    def fn(a: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            b = a @ w
        with torch.enable_grad():
            c = a * 2
        return b, c

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        a, w = ctx.ints(3, 4).requires_grad_(), ctx.ints(4, 5).requires_grad_()
        ctx.backward(ctx.run(go, a, w), [a, w])


@modes("C3", smoke=True)
def autocast(ctx: Context) -> None:
    """Integers so small that bfloat16 has them, sums included."""
    go = ctx.compile(lambda x, w: ((y := x @ w), y.relu() + x[:, :3], F.linear(y, w), (y * 2).sum(1)))
    for _ in ctx.rounds():
        with torch.autocast("cpu", torch.bfloat16, enabled=not ctx.wide):
            ctx.run(go, ctx.ints(4, 3, low=-2, high=3), ctx.ints(3, 3, low=-2, high=3))


@modes("C3", "C2")
def autocast_within(ctx: Context) -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return y, x @ w

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        ctx.run(go, ctx.ints(4, 3, low=-2, high=3), ctx.ints(3, 5, low=-2, high=3))


@modes("C3", "C4")
def autocast_on_and_off(ctx: Context) -> None:
    go = ctx.compile(lambda x, w: (x @ w, x + 1))
    for call in ctx.rounds():
        with torch.autocast("cpu", torch.bfloat16, enabled=call % 2 == 1):
            ctx.run(go, ctx.ints(4, 3, low=-2, high=3), ctx.ints(3, 5, low=-2, high=3))


@modes("C3", "gradients.C1", profile="training")
def autocast_trained(ctx: Context) -> None:
    module = ctx.integer_params(nn.Linear(4, 3))
    go = ctx.compile(module)
    for _ in ctx.rounds():
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            result = ctx.run(go, ctx.ints(5, 4, low=-2, high=3))
        ctx.backward([result], list(module.parameters()), lambda y: ctx.ints(*y.shape, low=-1, high=2).to(y.dtype))


@modes("C2")
def no_mode_left_behind(ctx: Context) -> None:
    go = ctx.compile(lambda x: x * 2)
    for call in ctx.rounds():
        before = _modes()
        ctx.run(go, ctx.ints(4))
        ctx.check(f"call {call}", before == _modes())


def _modes() -> tuple[object, ...]:
    return (
        torch.get_default_dtype(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_device(),
        bool(torch.full((), 1e-310, dtype=torch.float64) * 0.5 > 0),
    )  # numbers below the normal ones are kept


# -- several models ----------------------------------------------------------------------------------------------------


@several("C2", "C1", smoke=True)
def same_model_other_weights(ctx: Context) -> None:
    modules = [ctx.integer_params(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))) for _ in range(3)]
    programs = [ctx.compile(m) for m in modules]
    for _ in ctx.rounds():
        x = ctx.ints(5, 4)
        for program in programs:
            ctx.run(program, x)


@several("C1", "calls.C2")
def two_models_in_turns(ctx: Context) -> None:
    first, second = ctx.integer_params(nn.Linear(4, 4)), ctx.integer_params(nn.Conv1d(4, 2, 3, padding=1))
    one, two = ctx.compile(first), ctx.compile(lambda x: second(x).relu())
    for _ in ctx.rounds():
        ctx.run(one, ctx.ints(3, 4))
        ctx.run(two, ctx.ints(1, 4, 7))
        ctx.run(one, ctx.ints(3, 4))


ALIKE: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: (a - b * 2).copysign(0.0) + torch.tensor([1, 2, 4], dtype=a.dtype, device=a.device),
    lambda a, b: (b - a * 2).copysign(0.0) + torch.tensor([1, 2, 4], dtype=a.dtype, device=a.device),
    lambda a, b: (a - b * 2).copysign(-0.0) + torch.tensor([1, 2, 4], dtype=a.dtype, device=a.device),
    lambda a, b: (a - b * 2).copysign(0.0) + torch.tensor([3, 2, 4], dtype=a.dtype, device=a.device),
)
"""Programs that differ in one thing: the places of the arguments, the sign of a zero, a number of a literal tensor."""


@several("C1", smoke=True)
def programs_that_are_alike(ctx: Context) -> None:
    """What finds compiled code by less than all of the program gives one of them the results of another."""
    programs = [ctx.compile(fn) for fn in ALIKE]
    for _ in ctx.rounds():
        a, b = ctx.ints(3), ctx.ints(3)
        for go in programs:
            ctx.run(go, a, b)


@several("C3", smoke=True)
def weights_written_between_calls(ctx: Context) -> None:
    module = ctx.integer_params(nn.Linear(4, 3))
    go = ctx.compile(module)
    for _ in ctx.rounds():
        ctx.run(go, ctx.ints(2, 4))
        with torch.no_grad():
            module.get_parameter("weight").add_(1)
            module.get_parameter("bias").copy_(ctx.ints(3))


@several("C3")
def weights_replaced(ctx: Context) -> None:
    module = ctx.integer_params(nn.Linear(4, 3))
    go = ctx.compile(module)
    for _ in ctx.rounds():
        ctx.run(go, ctx.ints(2, 4))
        module.weight = nn.Parameter(ctx.ints(3, 4))
        module.load_state_dict({"weight": ctx.ints(3, 4), "bias": ctx.ints(3)})


@several("C1", "C2")
def one_layer_used_twice(ctx: Context) -> None:
    layer = ctx.integer_params(nn.Linear(4, 4))
    go = ctx.compile(lambda x: layer(layer(x).relu()))
    for _ in ctx.rounds():
        layer.zero_grad()
        x = ctx.ints(3, 4, low=-1, high=2).requires_grad_()
        ctx.backward([ctx.run(go, x)], [x, *layer.parameters()])


@several("C1")
def functions_alike_but_for_a_constant(ctx: Context) -> None:
    programs = [ctx.compile(lambda x, k=k: (x + k).relu() * (k + 1)) for k in range(4)]
    for _ in ctx.rounds():
        x = ctx.ints(6)
        for program in programs:
            ctx.run(program, x)


@several("C1", "C3")
def tied_weights(ctx: Context) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 4)

        def forward(self, i: Tensor) -> Tensor:
            rows: Tensor = self.table(i)
            return rows @ self.table.weight.t()

    module = ctx.integer_params(Tied())
    go = ctx.compile(module)
    for _ in ctx.rounds():
        module.zero_grad()
        result = ctx.run(go, ctx.indices(7, 5))
        ctx.backward([result], list(module.parameters()))
        with torch.no_grad():
            next(module.parameters()).add_(1)
