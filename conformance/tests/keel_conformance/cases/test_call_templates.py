"""Calls written down as data: every choice is one that eager PyTorch takes, and gives the same types at each call."""

from __future__ import annotations

import pytest
import torch

from keel.opset import MEMBERS
from keel_conformance.cases.domain import DTYPES
from keel_conformance.cases.domains import contraction, domain_of, embedding_bag, losses, pooling, quantization_params
from keel_conformance.cases.domains.call_templates import CallTemplate, TensorArg, domain, when
from keel_conformance.cases.plan import choices
from keel_conformance.cases.values import SeededValues
from keel_conformance.oracles.judge import target_of

SPREAD = (
    "mm",
    "max_pool2d_with_indices",
    "layer_norm",
    "nll_loss",
    "sdpa",
    "cholesky",
    "upsample_linear",
    "quantize_per_channel",
    "uniform",
)


@pytest.mark.parametrize(
    ("name", "seed", "least", "apart"),
    [
        *((name, 3, 60, 9) for name in SPREAD),
        *((name, 2, 200, 11) for name in embedding_bag.BUILD.declared),
        *((name, 1, 200, 11) for name in quantization_params.BUILD.declared),
    ],
)
def test_eager_takes_every_choice(name: str, seed: int, least: int, apart: int) -> None:
    made = domain_of(name)
    assert made is not None
    chosen = choices(made, "standard", seed)
    assert len(chosen) >= least
    for levels in chosen[::apart]:
        inputs = made.make(levels, DTYPES[levels["dtype"]], SeededValues("some case"))
        assert inputs is not None
        target_of(name, made.overload(levels))(*inputs.args, **inputs.kwargs)


@pytest.mark.parametrize("name", ["addmm", "nll_loss", "cholesky"])
def test_calls_differ_in_values_alone(name: str) -> None:
    made = domain_of(name)
    assert made is not None
    levels = choices(made, "smoke", 0)[0]
    one, two = (made.make(levels, DTYPES[levels["dtype"]], SeededValues("some case", k)) for k in (0, 1))
    assert one is not None and two is not None
    pairs = [(a, b) for a, b in zip(one.args, two.args, strict=True) if isinstance(a, torch.Tensor)]
    assert all((a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype) for a, b in pairs)
    assert any(a.numel() and not torch.equal(a, b) for a, b in pairs)


def test_what_is_ignored_is_nan() -> None:
    made = contraction.BUILD.declared["addmm"](MEMBERS["addmm"])
    levels = next(c for c in choices(made, "standard", 0) if c["scale"] == "nan_ignored" and c["dtype"] == "f32")
    inputs = made.make(levels, torch.float32, SeededValues("some case"))
    assert inputs is not None and bool(inputs.args[0].isnan().all()) and inputs.kwargs["beta"] == 0


def test_exact_sums_are_exact_in_any_order() -> None:
    made = contraction.BUILD.declared["mm"](MEMBERS["mm"])
    levels = {"dtype": "f32", "k": "4096", "size": "3x5", "layout": "transposed", "which": "rest", "values": "exact"}
    assert made.allows(levels)
    inputs = made.make(levels, torch.float32, SeededValues("some case"))
    assert inputs is not None and "exact" in inputs.notes
    x, y = inputs.args
    assert torch.equal(x @ y, (x.double() @ y.double()).float())
    assert torch.equal(x.flip(-1) @ y.flip(0), x @ y)


def test_a_clause_is_cited_where_its_choice_is() -> None:
    made = losses.BUILD.declared["nll_loss"](MEMBERS["nll_loss"])
    chosen = choices(made, "standard", 0)
    all_ignored = [c for c in chosen if "C4" in made.covers(c)]
    assert all_ignored and all(c["ignored"] == "all" and c["reduction"] == "mean" for c in all_ignored)


@pytest.mark.parametrize("name", ["avg_pool2d", "mm"])
def test_eager_refuses_the_negative_ones(name: str) -> None:
    for negative in {**pooling.BUILD.declared, **contraction.BUILD.declared}[name](MEMBERS[name]).invalid_calls:
        inputs = negative.make(SeededValues("some case"))
        with pytest.raises((RuntimeError, ValueError)):
            target_of(name, negative.overload)(*inputs.args, **inputs.kwargs)


def test_choices_that_are_no_calls_are_left_out() -> None:
    def ask(levels: dict[str, str]) -> CallTemplate | None:
        a, b = int(levels["a"]), int(levels["b"])
        return CallTemplate("aten.mm.default", (TensorArg((a, b)), TensorArg((b, a)))) if a <= b else None

    made = domain(
        MEMBERS["mm"],
        {"a": ("1", "3"), "b": ("1", "3")},
        ask,
        dtypes=(torch.float32,),  # type: ignore[arg-type]
        covers={"C5": when(a="1")},
    )
    chosen = choices(made, "standard", 0)
    assert chosen and all(int(c["a"]) <= int(c["b"]) for c in chosen)
    assert not any(c["layout"] == "transposed" and c["a"] == c["b"] == "1" for c in chosen)
