"""Contract programs of training, of programs in several parts, and of whole models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .. import models
from ..devices import HOST
from .context import Context
from .program import Chapter

training, partition, whole_models = Chapter("training"), Chapter("partition"), Chapter("models", "inference")

# -- training ----------------------------------------------------------------------------------------------------------

Optimizer = Callable[[Any], torch.optim.Optimizer]
EXACT: dict[str, Optimizer] = {
    # Powers of two as rates, and steps so few that all digits fit.
    "sgd": lambda ps: torch.optim.SGD(ps, 0.125),
    "sgd-momentum": lambda ps: torch.optim.SGD(ps, 0.125, momentum=0.5),
    "sgd-weight-decay": lambda ps: torch.optim.SGD(ps, 0.125, weight_decay=0.5),
}
ROUNDED: dict[str, Optimizer] = {
    "sgd-nesterov": lambda ps: torch.optim.SGD(ps, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda ps: torch.optim.Adam(ps, 0.01),
    "adamw": lambda ps: torch.optim.AdamW(ps, 0.01, weight_decay=0.1),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, 0.01),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, 0.05),
}


def linear(ctx: Context) -> nn.Module:
    return ctx.integer_params(nn.Linear(4, 3))


def perceptron(ctx: Context) -> nn.Module:
    return ctx.normal_params(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))


def _optimizers() -> None:
    for name, make in EXACT.items():

        @training("C1", "gradients.C1", name=name, smoke=name == "sgd-momentum")
        def exact(ctx: Context, make: Optimizer = make) -> None:
            module = linear(ctx)
            optimizer, go = make(module.parameters()), ctx.compile(module)
            for call in range(min(ctx.calls, 4)):
                optimizer.zero_grad()
                result = ctx.run(go, ctx.ints(4, 4, low=-1, high=2))
                result.backward(ctx.ints(4, 3, low=-1, high=2))
                optimizer.step()
                ctx.state(f"step{call}", module)

    for name, make in ROUNDED.items():

        @training("C1", "gradients.C1", name=name, exact=False, smoke=name == "adam")
        def rounded(ctx: Context, make: Optimizer = make) -> None:
            module = perceptron(ctx)
            optimizer, go = make(module.parameters()), ctx.compile(module)
            for call in ctx.rounds():
                optimizer.zero_grad()
                result = ctx.run(go, ctx.normal(8, 6))
                (result - ctx.normal(8, 3)).square().mean().backward()
                optimizer.step()
                ctx.state(f"step{call}", module)


_optimizers()


@training("C1", exact=False)
def loss_inside(ctx: Context) -> None:
    module = perceptron(ctx)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    go = ctx.compile(lambda x, t: F.cross_entropy(module(x), t))
    for call in ctx.rounds():
        optimizer.zero_grad(set_to_none=call % 2 == 0)
        ctx.run(go, ctx.normal(8, 6), ctx.indices(3, 8)).backward()
        optimizer.step()
        ctx.state(f"step{call}", module)


@training("C1", exact=False)
def convolution_and_norm(ctx: Context) -> None:
    module = ctx.normal_params(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(64, 2))
    )
    optimizer, go = torch.optim.SGD(module.parameters(), 0.05), ctx.compile(module)
    for call in range(min(ctx.calls, 4)):
        optimizer.zero_grad()
        ctx.run(go, ctx.normal(4, 3, 4, 4)).square().mean().backward()
        optimizer.step()
        ctx.state(f"step{call}", module)


@training("C2", "gradients.C4")
def gradients_over_several_batches(ctx: Context) -> None:
    module = linear(ctx)
    go = ctx.compile(module)
    for call in ctx.rounds():
        if call % 3 == 2:
            module.zero_grad()
        ctx.backward([ctx.run(go, ctx.ints(4, 4))], list(module.parameters()), clause="contract.training.C2")


@training("C3", "gradients.C2")
def frozen_layer(ctx: Context) -> None:
    module = ctx.integer_params(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), low=-1, high=2)
    module.get_submodule("0").requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.25)
    go = ctx.compile(module)
    for call in range(min(ctx.calls, 4)):
        optimizer.zero_grad()
        ctx.backward([ctx.run(go, ctx.ints(3, 4, low=-1, high=2))], list(module.parameters()))
        optimizer.step()
        ctx.state(f"step{call}", module, "contract.training.C3")


@training("C3")
def frozen_between_steps(ctx: Context) -> None:
    module = linear(ctx)
    go = ctx.compile(module)
    for call in ctx.rounds():
        module.weight.requires_grad_(call % 2 == 0)
        module.zero_grad()
        ctx.backward([ctx.run(go, ctx.ints(3, 4))], list(module.parameters()))


@training("C4", "modes.C1", smoke=True)
def inference_after_training(ctx: Context) -> None:
    module = linear(ctx)
    optimizer, go = torch.optim.SGD(module.parameters(), 0.25), ctx.compile(module)
    for call in range(min(ctx.calls, 4)):
        module.train()
        optimizer.zero_grad()
        go(ctx.ints(4, 4, low=-1, high=2)).backward(ctx.ints(4, 3, low=-1, high=2))
        optimizer.step()
        module.eval()
        with torch.no_grad():
            ctx.record(f"inference {call}", go(ctx.ints(2, 4)))


@training("C4", "buffers.C2", exact=False)
def evaluation_between_steps(ctx: Context) -> None:
    module = ctx.normal_params(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2)))
    optimizer, go = torch.optim.SGD(module.parameters(), 0.05), ctx.compile(module)
    for call in ctx.rounds():
        module.train()
        optimizer.zero_grad()
        go(ctx.normal(8, 4)).square().mean().backward()
        optimizer.step()
        module.eval()
        with torch.no_grad():
            ctx.record(f"inference {call}", go(ctx.normal(3, 4)))
        ctx.state(f"step{call}", module)


@training("C1", "mutation.C2", exact=False)
def optimizer_within_the_program(ctx: Context) -> None:
    """The update itself is compiled: parameters are arguments that are written to."""

    def step(ps: list[Tensor], gs: list[Tensor], ms: list[Tensor]) -> None:
        for p, g, m in zip(ps, gs, ms, strict=True):
            m.mul_(0.9).add_(g, alpha=0.1)
            p.sub_(m / (m.square().mean().sqrt() + 1e-3), alpha=0.01)

    go = ctx.compile(step)
    ps, ms = [ctx.normal(4, 3), ctx.normal(5)], [torch.zeros(4, 3, dtype=ctx.dtype), torch.zeros(5, dtype=ctx.dtype)]
    for _ in ctx.rounds():
        ctx.run(go, ps, [ctx.normal(4, 3), ctx.normal(5)], ms)


# -- in several parts --------------------------------------------------------------------------------------------------


def pair(ctx: Context) -> list[Tensor]:
    return [ctx.ints(5, 4), ctx.ints(4, 6)]


WITHOUT: tuple[tuple[str, tuple[str, ...], Callable[..., Any]], ...] = (
    ("no-addition", ("aten.add",), lambda a, b: ((a @ b + 1).relu() * 2 + b.sum(0), a + a)),
    ("no-multiplication", ("aten.mul",), lambda a, b: ((a * 2) @ b * 3 - 1).relu()),
    ("no-sum", ("aten.sum",), lambda a, b: ((a @ b).sum(0) + 1, (a * 2).sum() - b)),
    ("no-matmul", ("aten.mm", "aten.addmm", "aten.bmm"), lambda a, b: ((a + 1) @ b).relu() @ b.t()),
    (
        "no-comparison",
        ("aten.gt", "aten.lt", "aten.le", "aten.ge"),
        lambda a, b: torch.where(a > 0, a * 2, a - 1) @ b,
    ),
    ("no-cat", ("aten.cat",), lambda a, b: torch.cat([a + 1, b.t() * 2]).cumsum(0)),
    (
        "no-views",
        (
            "aten.view",
            "aten.permute",
            "aten.slice",
            "aten.t",
            "aten.transpose",
            "aten.expand",
            "aten.unsqueeze",
            "aten.reshape",
        ),
        lambda a, b: ((a + 1).t()[1:] * 2, (b * 2).reshape(-1) - 1),
    ),
    (
        "no-indexing",
        ("aten.index", "aten.gather", "aten.index_select"),
        lambda a, b: ((a * 2)[torch.tensor([0, 3, 3], device=a.device)] + 1, (b + 1).gather(1, (b > 0).long())),
    ),
    (
        "every-second-operator",
        ("aten.add", "aten.mul"),
        lambda a, b: ((((a + 1).relu() * 2 - 3).abs() + a).neg() * 5, (b + 1).amax(0) * 2),
    ),
)
"""Names of programs, the operators that are refused in each, and what it computes."""
for _name, _ops, _fn in WITHOUT:
    partition.function(_name, ["C1"], _fn, pair, without=_ops, smoke=_name == "no-addition")
partition.function(
    "write-crosses",
    ["C2", "mutation.C2"],
    lambda a, b: (a.mul_(2), a.add_(1), (a @ b) * 3)[2],
    pair,
    without=("aten.add",),
)
partition.function(
    "view-crosses",
    ["C2", "views.C1"],
    lambda a, b: ((y := a * 2).t(), (y + 1)[1:], a.t(), y),
    pair,
    without=("aten.add",),
)
partition.function(
    "gradients-cross",
    ["C3", "gradients.C1"],
    lambda a, b: ((a @ b + 1).relu() * 2 + a.sum()) * 3,
    pair,
    gradients=True,
    without=("aten.add",),
    profile="training",
    smoke=True,
)
partition.function(
    "gradients-cross-sums",
    ["C3", "gradients.C1"],
    lambda a, b: ((a * 2) @ b).sum(0) * b,
    pair,
    gradients=True,
    without=("aten.sum",),
    profile="training",
)
partition.function(
    "sizes-cross",
    ["C1", "shapes.C2"],
    lambda a, b: ((a @ b + a.shape[0]).relu(), a.sum(0) + 1),
    lambda ctx: [ctx.ints(4 + 3 * (ctx.runs % 3), 4), ctx.ints(4, 6)],
    dynamic=True,
    without=("aten.add",),
    profile="dynamic",
)


@partition("C1", smoke=True)
def parts_against_the_whole(ctx: Context) -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = (x @ w).relu() + 1
        return y.cumsum(0) * 2, (y - y.amax(1, keepdim=True)).sum(0)

    left_out = ((), ("aten.add",), ("aten.sub", "aten.mm"), ("aten.sum",))
    programs = {ops: ctx.compile(fn, without=ops) for ops in left_out}
    for _ in ctx.rounds():
        x, w = ctx.ints(5, 4), ctx.ints(4, 6)
        results_by_split = {ops: ctx.run(go, x, w) for ops, go in programs.items()}
        for ops, results in results_by_split.items():
            ctx.check(
                f"run {ctx.runs} without {', '.join(ops) or 'nothing'}",
                all(map(torch.equal, results, results_by_split[()])),
            )


@partition("C2", "random.C3", profile="training")
def mask_crosses(ctx: Context) -> None:
    go = ctx.compile(lambda x: (F.dropout(x + 1, 0.5) + 0) * 3, without=("aten.add",))
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        x = ctx.ints(40, 50, low=1).requires_grad_()
        result = go(x)
        result.backward(torch.ones_like(result))
        ctx.check(f"call {call}: gradient where the result is", ((x.grad != 0) == (result != 0)).all())


@partition("C3", "training.C1", profile="training", exact=False)
def model_in_parts_trained(ctx: Context) -> None:
    module = ctx.normal_params(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)))
    optimizer, go = torch.optim.SGD(module.parameters(), 0.1), ctx.compile(module, without=("aten.add", "aten.mul"))
    for call in ctx.rounds():
        optimizer.zero_grad()
        F.cross_entropy(ctx.run(go, ctx.normal(5, 6)), ctx.indices(3, 5)).backward()
        optimizer.step()
        ctx.state(f"step{call}", module)


# -- whole models ------------------------------------------------------------------------------------------------------


def _models() -> None:
    for name in models.NAMES:
        needs = models.package(name)

        @whole_models("C4", name=name, exact=False, smoke=name == "gpt2", noise=3, needs=needs)
        def inference(ctx: Context, name: str = name) -> None:
            case = built(ctx, name)
            go = ctx.compile(case.model)
            with torch.no_grad(), models.InDouble() if ctx.wide else torch.no_grad():
                for call in range(2):
                    ctx.record(
                        f"call{call}",
                        go(*(moved(ctx, x) for x in case.args), **{k: moved(ctx, v) for k, v in case.kwargs.items()}),
                    )

        @whole_models(
            "C4", "training.C1", name=f"{name}-trained", exact=False, profile="training", noise=3, needs=needs
        )
        def trained(ctx: Context, name: str = name) -> None:
            case = built(ctx, name)
            go = ctx.compile(case.model)
            optimizer = torch.optim.SGD(case.model.parameters(), 1e-3)
            with models.InDouble() if ctx.wide else torch.enable_grad():
                for call in range(2):
                    optimizer.zero_grad()
                    loss = case.loss(
                        go(
                            *(moved(ctx, x) for x in case.args),
                            **{k: moved(ctx, v) for k, v in case.kwargs.items()},
                            **case.targets,
                        )
                    )
                    loss.backward()
                    optimizer.step()
                    ctx.record(f"loss {call}", loss.detach())
            ctx.state("trained", case.model)


def built(ctx: Context, name: str) -> models.ModelCase:
    """The model, its parameters drawn on the host."""
    with torch.device(HOST):
        case = models.build(name, scale="tiny", seed=ctx.seed, device=ctx.device)
    return case.twin(torch.float64) if ctx.wide else case


def moved(ctx: Context, x: Any) -> Any:
    """The same argument with other values: floats are drawn again, tokens change places."""
    if not isinstance(x, Tensor):
        return x
    if x.is_floating_point():
        return ctx.normal(*x.shape)
    return x[..., ctx.permutation(x.shape[-1])] if x.dim() and x.dtype == torch.int64 else x.clone()


_models()
