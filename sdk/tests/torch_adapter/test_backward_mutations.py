"""Programs that write to tensors in forward, in backward, or in both, each beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from keel import Backend
from keel.torch_adapter.backward_mutations import saves_unchecked

from ..line import LITTLE, takes, whole
from ..twin import Make, assert_like_eager

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.filterwarnings("ignore:.* should not be instantiated:DeprecationWarning"),
]  # Dynamo does so
BACKENDS = {"whole": [whole()], "little": [takes(*LITTLE, name="little"), whole("rest", last_resort=True)]}


@pytest.fixture(params=BACKENDS)
def backends(request: pytest.FixtureRequest) -> list[Backend]:
    return BACKENDS[request.param]


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, buffer: Tensor) -> Tensor:
        ctx.buffer = buffer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.buffer.add_(grad + 1)
        return grad, None


class InBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, buffer: Tensor) -> Tensor:
        buffer.add_(1)
        ctx.buffer = buffer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.buffer.add_(1)  # which needs no gradient, and could be computed before
        return grad, None


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: Tensor) -> Tensor:
        ctx.count = count
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.count.add_(1)
        return grad * ctx.count, None


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2).add_(x.detach().mean())
        ctx.a, ctx.b = a, b
        ctx.save_for_backward(x)
        return x * 1.5

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        ctx.b.copy_(ctx.a * 3 + grad.sum() + x)
        ctx.a.sub_(0.5)
        return grad * 1.5 * ctx.a.sum(), None, None


class Views(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, buffer: Tensor) -> Tensor:
        ctx.view, ctx.buffer = buffer[1:], buffer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.view.add_(grad[1:])
        ctx.buffer[0] = 7
        return grad + ctx.buffer, None


class ViewsInBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, buffer: Tensor) -> Tensor:
        buffer[:2] += 1
        ctx.view = buffer[1:]
        buffer[0] = 5
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.view.add_(1)
        return grad + ctx.view.sum(), None


class History(torch.autograd.Function):
    """Scales by the largest values seen, of which it keeps a history, as training in 8-bit floats does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, history: Tensor, scale: Tensor) -> Tensor:
        history[0] = x.detach().abs().max()
        ctx.history, ctx.scale = history, scale
        return (x * scale) / scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.history[1] = grad.abs().max()
        ctx.history.copy_(ctx.history.roll(1))
        ctx.scale.copy_(ctx.history.max() + 1)
        return grad * ctx.scale, None, None


class Reading(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, buffer: Tensor) -> Tensor:
        buffer.add_(1)
        ctx.buffer = buffer
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * (ctx.buffer * 2).exp(), None


def recomputes_what_it_overwrites(x: Tensor, b: Tensor) -> Tensor:
    y = x * b.sin()
    b.add_(1)
    return y


def saves_a_view_of_what_it_overwrites(x: Tensor, b: Tensor) -> Tensor:
    y = x * b.view(3, 1).exp().view(3)
    b[1:].mul_(2)
    return y


def reads_around_both(x: Tensor, b: Tensor) -> Tensor:
    return ViewsInBoth.apply(x * b.sin(), b) * b.cos()


def copies_what_it_also_saves(x: Tensor, b: Tensor) -> Tensor:
    new = x.sin()
    b.copy_(new.detach())
    return InBoth.apply(x * new, b)


def has_a_hook(x: Tensor, b: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return InBoth.apply(y, b).sin()


def is_checkpointed(x: Tensor, b: Tensor) -> Tensor:
    y = checkpoint(lambda x: F.gelu(x).softmax(-1) * x, x, use_reentrant=False)
    return InBoth.apply(y, b)


def in_autocast(x: Tensor, b: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = InBoth.apply(x[None] @ x[:, None], b)
    return y.float().exp()


def a_buffer() -> Sequence[Any]:
    return leaf(3), torch.ones(3)


PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {
    "backward": (lambda x, b: InBackward.apply(x, b), a_buffer),
    "both": (lambda x, b: InBoth.apply(x, b), a_buffer),
    "a counter": (lambda x, n: Counting.apply(x, n), lambda: (leaf(3), torch.tensor(0))),
    "a counter, twice": (
        lambda x, n: Counting.apply(Counting.apply(x, n).sin(), n),
        lambda: (leaf(3), torch.tensor(0)),
    ),
    "several": (lambda x, a, b: Several.apply(x, a, b), lambda: (leaf(3), torch.ones(3), torch.zeros(3))),
    "views": (lambda x, b: Views.apply(x, b) * 2, a_buffer),
    "views in both": (lambda x, b: ViewsInBoth.apply(x, b) * 2, a_buffer),
    "history": (
        lambda x, h, s: History.apply(History.apply(x.sin(), h, s).cos(), h, s),
        lambda: (leaf(4), torch.zeros(4), torch.ones(())),
    ),
    **{
        f.__name__.replace("_", " "): (f, a_buffer)
        for f in (
            recomputes_what_it_overwrites,
            saves_a_view_of_what_it_overwrites,
            reads_around_both,
            copies_what_it_also_saves,
            has_a_hook,
            is_checkpointed,
            in_autocast,
        )
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_and_two_backwards_leave_what_eager_leaves(name: str, backends: list[Backend]) -> None:
    program, make = PROGRAMS[name]
    assert_like_eager(program, make, backends, backward=2, fullgraph=True)


@pytest.mark.slow
@pytest.mark.skipif(not saves_unchecked(), reason="This PyTorch refuses to run backward then.")
@pytest.mark.parametrize("function", [InBackward, InBoth, Views, Reading], ids=lambda f: f.__name__)
def test_backward_reads_what_was_written_since_forward(function: Any, backends: list[Backend]) -> None:
    def between(x: Tensor, b: Tensor) -> None:
        b.mul_(2)

    assert_like_eager(lambda x, b: function.apply(x, b), a_buffer, backends, backward=2, between=between)


def test_sizes_may_be_symbols() -> None:
    assert_like_eager(lambda x, b: InBoth.apply(x.sin(), b), a_buffer, ["interp", "eager"], backward=2, dynamic=True)
