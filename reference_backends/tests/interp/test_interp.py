"""The interpreter as a backend: whole models, forward and backward, with every op there is and with twenty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import keel
import keel_interp
from keel import KeelError, Launcher, Source, loop_backend
from keel.loops import Apply, Kernel, parse, show, walk

TWENTY = frozenset(
    (
        "cast",
        "bitcast",
        "where",
        "neg",
        "add",
        "sub",
        "mul",
        "div",
        "truncdiv",
        "lt",
        "eq",
        "and",
        "or",
        "not",
        "floor",
        "sqrt",
        "exp",
        "log",
        "sin",
        "cos",
    )
)
SEEN: set[str] = set()


def watched(sources: Sequence[Source]) -> list[Launcher]:
    for source in sources:
        SEEN.update(s.op for s in walk(source.kernel.body) if isinstance(s, Apply))
    return keel_interp.build(sources)


SMALL = loop_backend(
    replace(
        keel_interp.target,
        name="twenty",
        build=watched,
        reductions={},
        scalars={name: text for name, text in keel_interp.target.scalars.items() if name in TWENTY},
    )
)


class Transformer(nn.Module):
    """An encoder layer with an embedding before it and a loss behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.norm, self.last = nn.LayerNorm(32), nn.LayerNorm(32)
        self.project, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        q, k, v = self.project(self.norm(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(self.future(tokens.shape[1]), -torch.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        h = self.wide(self.last(x))
        x = x + self.narrow(nn.functional.gelu(h) + nn.functional.silu(h) * torch.tanh(h))
        return nn.functional.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    @staticmethod
    def future(length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool).triu(1)


class Convnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=2),
            nn.GroupNorm(2, 8),
            nn.Hardswish(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).sigmoid().log().mean()


def both(model: nn.Module, x: Tensor, backend: object) -> tuple[list[Tensor], list[Tensor]]:
    """Loss, gradients and buffers: compiled, and eager."""
    found = []
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for run in (keel.compile(model, backends=[backend, "eager"]), model):
        model.load_state_dict(state)
        model.zero_grad(set_to_none=True)
        loss = run(x)
        loss.backward()
        found.append(
            [loss.detach(), *(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers())]
        )
    return found[0], found[1]


def tokens() -> Tensor:
    return torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))


def image() -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("backend", ["interp", SMALL], ids=["all", "twenty"])
@pytest.mark.parametrize(("make", "data"), [(Transformer, tokens), (Convnet, image)], ids=["transformer", "convnet"])
def test_models_forward_and_backward(make: type[nn.Module], data: Callable[[], Tensor], backend: object) -> None:
    torch.manual_seed(1)
    SEEN.clear()
    got, want = both(make(), data(), backend)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)
    assert SEEN <= TWENTY
    assert bool(SEEN) == (backend is SMALL)


def test_sizes_known_only_at_run_time() -> None:
    def rows(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x, -1).cumsum(0), x.flatten().argmax()

    run = keel.compile(rows, backends=["interp"], dynamic=True, strict=True)
    for n, m in ((3, 5), (7, 4), (2, 9)):
        x = torch.randn(n, m, generator=torch.Generator().manual_seed(n))
        for a, b in zip(run(x), rows(x), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "rule",
    [
        lambda x: torch.cos(x).triu(),
        lambda x: torch.ones(5, 5).triu(1) + x,
        lambda x: x.bfloat16().cos().tril(-1),
        lambda x: nn.functional.pad(x.exp(), (1, 2)),
        lambda x: nn.functional.pad((x < 9).tril(), (2, 0)),
        lambda x: torch.cat([x.exp(), x.cos().triu()]),
    ],
)
def test_what_is_computed_in_place_is_zero_outside_of_a_mask(rule: Callable[[Tensor], Tensor]) -> None:
    """Whatever it would be at zero: cos(0) is 1."""
    x = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(keel.compile(rule, backends=["interp"], strict=True)(x), rule(x))


def test_a_launcher_is_made_from_the_text_alone() -> None:
    text = (
        "kernel k(a: f32[s0]) -> (o: f32[s0]) where s0:\n  parallel i < s0:\n    %0 = load a[i]\n    %1 = neg %0\n"
        "    store o[i] %1\n"
    )
    out = torch.empty(3)
    keel_interp.launcher(text)(torch.arange(3.0), out, 3)
    assert out.tolist() == [0, -1, -2]
    with pytest.raises(KeelError, match="bad-text"):
        keel_interp.launcher(text.replace("neg", "negate"))
    with pytest.raises(KeelError, match="bad-graph"):
        keel_interp.launcher(text.replace("neg", "isnan"))


def test_what_it_dumps_can_be_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a kernel is the kernel."""
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    x = torch.arange(6.0).view(2, 3)
    keel.compile(lambda x: torch.softmax(x, -1), backends=["interp"])(x)
    files = list(tmp_path.rglob("04-*.loops"))
    assert len(files) == 1
    kernel = parse(files[0].read_text())
    assert isinstance(kernel, Kernel) and show(kernel) == files[0].read_text()
    out = torch.empty(6)
    keel_interp.launcher(show(kernel))(x, out)
    torch.testing.assert_close(out.view(2, 3), torch.softmax(x, -1))
