"""The zoo has each model once, at three sizes that differ; weights do not depend on the size."""

from __future__ import annotations

import pytest
import torch

from keel_bench.models import model_zoo
from keel_bench.training_step import Step, leavings, reference, run


def test_each_model_has_three_sizes() -> None:
    assert len(model_zoo.NAMES) == len(set(model_zoo.NAMES)) == len(model_zoo.TEXT) + len(model_zoo.VISION) == 133
    assert all(len(set(model_zoo.sizes(name))) == 3 for name in model_zoo.NAMES)


def test_a_mixture_of_experts_has_a_float64_twin() -> None:
    case = model_zoo.build("gpt-oss-20b")
    left = [leavings(Step(), c, run(Step(), c, c.model)) for c in (case, case.twin())]
    exact = reference(Step(), case)
    for one in left:
        torch.testing.assert_close(one["output.logits"].double(), exact["output.logits"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["t5", "resnet18", "BertForQuestionAnswering", "lcnet_050", "densenet121"])
def test_a_model_runs_at_each_size_with_the_same_weights(name: str) -> None:
    shapes = set()
    first = model_zoo.build(name)
    for size in model_zoo.sizes(name):
        case = model_zoo.build(name, size=size)
        given = case.args or tuple(case.kwargs.values())
        assert given[0].shape[0] == size.batch and size.extent in (0, given[0].shape[-1])
        with torch.no_grad():
            case.model(*case.args, **case.kwargs)
        shapes.add(given[0].shape)
        for ours, theirs in zip(case.model.parameters(), first.model.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    assert len(shapes) == 3


@pytest.mark.parametrize("name", ["resnet18", "mixer_b16_224", "nfnet_l0", "res2net50_14w_8s"])
def test_no_parameter_of_a_vision_model_is_all_zeros(name: str) -> None:
    """What it is multiplied by would show in no result."""
    case = model_zoo.build(name)
    assert [n for n, p in case.model.named_parameters() if not p.any()] == []
