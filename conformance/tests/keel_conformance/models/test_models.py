"""Every model of the bench line builds offline, runs, trains, and has a float64 twin that is double throughout."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.models import NAMES, InDouble, build
from keel_conformance.num_threads import threads

TEXT = ("bert", "gpt2", "llama", "t5")


def logits(out: object) -> torch.Tensor:
    return out["logits"]  # type: ignore[index]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_trains_a_step_near_its_double(name: str) -> None:
    case = build(name, scale="tiny")
    reference = case.twin(torch.float64)
    assert not case.model.training
    losses = []
    for c in (case, reference):
        c.model.train()
        loss = c.loss(c.model(*c.args, **c.kwargs, **c.targets)) if c is case else in_double(c)
        loss.backward()
        losses.append(loss)
        missing = [n for n, p in c.model.named_parameters() if p.grad is None]
        assert not missing
    assert losses[1].dtype == torch.float64
    torch.testing.assert_close(losses[0].double(), losses[1], rtol=1e-5, atol=0)


def in_double(case: object) -> torch.Tensor:
    with InDouble():
        return case.loss(case.model(*case.args, **case.kwargs, **case.targets))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_model(name: str) -> None:
    with torch.no_grad():
        first, again, other = (
            logits(c.model(*c.args, **c.kwargs)) for c in (build(name, scale="tiny", seed=seed) for seed in (0, 0, 1))
        )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 1e-3 < first.abs().max() < 1e3


@pytest.mark.parametrize("name", NAMES)
def test_batch_and_length_are_taken(name: str) -> None:
    case = build(name, scale="tiny", batch=3, length=5)
    with torch.no_grad():
        out = logits(case.model(*case.args, **case.kwargs))
    assert out.shape[:-1] == ((3, 5) if name in TEXT else (3,))


def test_a_twin_shares_nothing() -> None:
    case = build("bert", scale="tiny")
    twin = case.twin()
    with torch.no_grad():
        for p in twin.model.parameters():
            p.zero_()
    assert all(p.abs().max() > 0 for n, p in case.model.named_parameters() if n.endswith("dense.weight"))
    assert twin.kwargs["input_ids"].data_ptr() != case.kwargs["input_ids"].data_ptr()


def test_in_double_is_the_default_meanwhile() -> None:
    with InDouble():
        assert torch.tensor(1e300).dtype == torch.float64
    assert torch.tensor(1.0).dtype == torch.float32


def test_in_double_turns_casts_to_float32_into_casts_to_float64() -> None:
    x = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert torch.equal(x.float().double(), x) is False
    with InDouble():
        assert torch.equal(x.float(), x)
        assert torch.equal(x.to(torch.float32), x)
        assert torch.arange(3, dtype=torch.float32).dtype == torch.float64


def test_unknown_names_are_answered_with_the_known() -> None:
    with pytest.raises(ValueError, match="there is no model 'vgg'; there are bert, gpt2"):
        build("vgg")
    with pytest.raises(ValueError, match="there is no scale 'huge'; there are line, tiny"):
        build("bert", scale="huge")


def test_statistics_are_the_same_numbers_however_many_threads_sum() -> None:
    made = []
    for count in (1, 2):
        with threads(count):
            made.append(build("mobilenetv3", scale="tiny", seed=1).model.state_dict())
    assert all(torch.equal(x, made[1][name]) for name, x in made[0].items())
