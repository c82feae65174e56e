"""The published models: enough of them, of every kind, and each tiny twin takes any batch and trains."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from keel_bench.models import diffusion_unet, published
from keel_bench.models.decode_step import TINY, decode_step
from keel_bench.training_step import Step, prepare, run, tensors


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_there_are_thirty_models_for_each_mode_and_device() -> None:
    for mode in ("inference", "training"):
        assert sum(mode in model.modes for model in published.MODELS.values()) >= 30
    assert all(min(model.throughput.values()) > 1 for model in published.MODELS.values())
    assert len(published.MODELS) == len(published.IMAGES) + len(published.TEXT) + len(published.OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ghostnet", "qwen2-0.5b", *published.OTHERS])
@pytest.mark.parametrize("batch", [2, 3])
def test_a_tiny_model_runs_in_its_modes(name: str, batch: int) -> None:
    case = published.build(name, batch, scale="tiny")
    for mode in published.MODELS[name].modes:
        out = run(Step(mode), prepare(Step(mode), case), case.model)
        assert all(t.isfinite().all() for _, t in tensors(out))
        if mode == "training":
            assert all(p.grad is not None for p in case.model.parameters() if p.requires_grad)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "millions"), [("mobilenetv3-large", 5.5), ("electra-small", 13.5)])
def test_a_published_model_has_its_published_size(name: str, millions: float) -> None:
    case = published.build(name, 1)
    assert parameters(case.model) / 1e6 == pytest.approx(millions, rel=0.02)
    assert (case.args or tuple(case.kwargs.values()))[0].shape[0] == 1


def test_own_networks_have_their_published_sizes() -> None:
    with torch.device("meta"):
        assert parameters(diffusion_unet.UNet()) / 1e6 == pytest.approx(35.7, rel=0.01)


def test_a_step_of_generation_can_be_repeated_and_reads_no_later_position() -> None:
    case = decode_step(2, TINY)
    first = run(Step(), case, case.model)
    assert torch.equal(first, run(Step(), case, case.model))
    caches = [b for name, b in case.model.named_buffers() if name.endswith(("keys", "values"))]
    for cells in caches:
        cells[:, :, TINY.cache // 2 + 1 :] = 7.0
    assert torch.equal(first, run(Step(), case, case.model))
    caches[0][:, :, 0] += 1.0
    assert not torch.equal(first, run(Step(), case, case.model))
