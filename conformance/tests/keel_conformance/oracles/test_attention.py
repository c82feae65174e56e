"""Attention: whatever its clauses leave to an implementation is within the bounds, and what breaks them is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_helpers import verdict
from torch import Tensor

from keel_conformance.oracles.compare import compare
from keel_conformance.oracles.running_error import analyze
from keel_conformance.oracles.tracked_tensor import tracked
from keel_selftest import attention_ways as legal

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"
BACKWARD = f"{FLASH}_backward.default"


def ways(weights: tuple[str, ...]) -> st.SearchStrategy[legal.Way]:
    return st.builds(
        legal.Way,
        order=st.sampled_from(("forwards", "backwards", "strided")),
        block=st.sampled_from((1, 16, 64, 1024)),
        weights=st.sampled_from(weights),
        sum_of_rounded=st.booleans(),
        parts=st.sampled_from((1, 2, 5)),
        accumulator=st.sampled_from((torch.float32, torch.float64)),
        delta=st.sampled_from(("out", "weights")),
    )


SIZES = st.tuples(*map(st.sampled_from, ((1, 2), (1, 7, 16), (1, 5, 33, 130), (1, 8, 32))))
SETTINGS = st.tuples(
    SIZES,
    st.sampled_from((0.3, 1.0, 4.0)),
    st.sampled_from((None, 1.0, 0.05)),
    st.sampled_from(("none", "causal", "additive")),
    st.integers(0, 10**6),
)


def drawn(dtype: torch.dtype, setting: Any) -> tuple[legal.Setting, Tensor, dict[str, Any], bool]:
    """The setting, a gradient of the output, and the keyword arguments and the flag of the call."""
    (heads, queries, keys, size), reach, scale, kind, seed = setting
    draw = torch.Generator().manual_seed(seed)

    def tensor(*shape: int) -> Tensor:
        return ((torch.rand(*shape, generator=draw) * 2 - 1) * reach).to(dtype)

    q, grad = tensor(1, heads, queries, size), tensor(1, heads, queries, size)
    k, v = tensor(1, heads, keys, size), tensor(1, heads, keys, size)
    mask = bias = None
    if kind == "additive":
        mask = torch.rand(1, 1, queries, keys, generator=draw) * 4 - 2
        mask = bias = torch.where(mask > 1, float("-inf"), mask).to(dtype)
    if kind == "causal":
        seen = torch.arange(keys) <= torch.arange(queries)[:, None]
        bias = torch.where(seen, 0.0, float("-inf"))
    factor = size**-0.5 if scale is None else scale
    return legal.Setting(q, k, v, factor, bias), grad, {"attn_mask": mask, "scale": scale}, kind == "causal"


def laid_as(x: Tensor, like: Tensor) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).copy_(x)


def both_verdicts(dtype: torch.dtype, setting: Any, way: legal.Way) -> tuple[Any, Any]:
    """The verdicts on the output and on the gradients that a way gives."""
    s, grad, kwargs, causal = drawn(dtype, setting)
    args = (s.q, s.k, s.v, 0.0, causal)
    eager = aten._scaled_dot_product_flash_attention_for_cpu.default(*args, **kwargs)
    forward = [laid_as(x, y) for x, y in zip(legal.attention(s, way), eager, strict=True)]
    given_args = (grad, s.q, s.k, s.v, *eager, 0.0, causal)
    theirs = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(*given_args, **kwargs)
    backward = [laid_as(x, y) for x, y in zip(legal.gradients(grad, *eager, s, way), theirs, strict=True)]
    return (
        verdict("sdpa", f"{FLASH}.default", args, forward, **kwargs),
        verdict("sdpa_backward", BACKWARD, given_args, backward, **kwargs),
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(HALVES), SETTINGS, ways(("never", "online", "divided")))
def test_every_legal_evaluation_in_16_bits_passes(dtype: torch.dtype, setting: Any, way: legal.Way) -> None:
    for found in both_verdicts(dtype, setting, way):
        assert found.status == "pass", found.sentence


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(SETTINGS, ways(("never",)))
def test_every_order_in_float32_passes(setting: Any, way: legal.Way) -> None:
    for found in both_verdicts(torch.float32, setting, replace(way, sum_of_rounded=False)):
        assert found.status == "pass", found.sentence


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.sampled_from(HALVES), SETTINGS)
def test_eager_itself_is_within_the_bounds(dtype: torch.dtype, setting: Any) -> None:
    """Not merely excused: its kernel rounds weights, and has exponentials that are off by 2^-13.2."""
    s, grad, kwargs, causal = drawn(dtype, setting)
    args = (s.q, s.k, s.v, 0.0, causal)
    eager = aten._scaled_dot_product_flash_attention_for_cpu.default(*args, **kwargs)
    assert verdict("sdpa", f"{FLASH}.default", args, eager, **kwargs).status == "pass"
    args = (grad, s.q, s.k, s.v, *eager, 0.0, causal)
    gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(*args, **kwargs)
    assert verdict("sdpa_backward", BACKWARD, args, gradients, **kwargs).status == "pass"


def short_sums(s: legal.Setting, out: Tensor) -> Tensor:
    """Products with the values are accumulated in 16 bits."""
    weights = torch.softmax(legal.scores(s, torch.arange(s.k.shape[-2]), legal.Way()), -1)
    total = torch.zeros_like(out)
    for k in range(s.k.shape[-2]):
        total = total + (weights[..., k : k + 1] * s.v[..., k : k + 1, :].float()).to(out.dtype)
    return total


def rounded_scores(s: legal.Setting, out: Tensor) -> Tensor:
    """Scores are rounded to 16 bits before the maximum is subtracted."""
    these = legal.scores(s, torch.arange(s.k.shape[-2]), legal.Way()).to(out.dtype).float()
    return (torch.softmax(these, -1) @ s.v.float()).to(out.dtype)


def last_key_lost(s: legal.Setting, out: Tensor) -> Tensor:
    return legal.attention(replace(s, k=s.k[..., :-1, :], v=s.v[..., :-1, :]), legal.Way())[0]


def scale_a_little_off(s: legal.Setting, out: Tensor) -> Tensor:
    return legal.attention(replace(s, scale=s.scale * 1.05), legal.Way())[0]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("wrong", "keys", "scale"),
    [(short_sums, 1000, 0.01), (rounded_scores, 200, 1.0), (last_key_lost, 20, 0.05), (scale_a_little_off, 50, 1.0)],
)
def test_a_wrong_output_fails(
    dtype: torch.dtype, wrong: Callable[[legal.Setting, Tensor], Tensor], keys: int, scale: float
) -> None:
    draw = torch.Generator().manual_seed(0)
    q, k, v = ((torch.rand(1, 1, n, 16, generator=draw) * 4).to(dtype) for n in (8, keys, keys))
    s = legal.Setting(q, k - 2, v, scale, None)
    args = (s.q, s.k, s.v)
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu.default(*args, scale=scale)
    assert verdict("sdpa", f"{FLASH}.default", args, [out, lse], scale=scale).status == "pass"
    result = laid_as(wrong(s, out), out)
    assert verdict("sdpa", f"{FLASH}.default", args, [result, lse], scale=scale).status == "fail"


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_without_delta_fails(which: int) -> None:
    s, grad, kwargs, causal = drawn(torch.bfloat16, ((2, 16, 33, 32), 1.0, None, "none", 0))
    eager = aten._scaled_dot_product_flash_attention_for_cpu.default(s.q, s.k, s.v, **kwargs)
    args = (grad, s.q, s.k, s.v, *eager, 0.0, causal)
    right = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(*args, **kwargs)
    without = legal.gradients(grad, eager[0] * 0, eager[1], s, legal.Way())
    changed = [
        laid_as(without[k] if k == which != 2 else x * (1.03 if k == which else 1), x) for k, x in enumerate(right)
    ]
    assert verdict("sdpa_backward", BACKWARD, args, right, **kwargs).status == "pass"
    assert verdict("sdpa_backward", BACKWARD, args, changed, **kwargs).status == "fail"


@pytest.mark.parametrize("way", [legal.Way(), legal.Way("backwards", 16), legal.Way(weights="divided")])
def test_attention_of_sequences_end_to_end_has_the_same_freedoms(way: legal.Way) -> None:
    """PyTorch has no kernel of it for processors, so the bounds are compared without the judge."""
    s, *_ = drawn(torch.bfloat16, ((2, 16, 33, 32), 1.0, None, "none", 0))
    tokens = [tracked(x.transpose(1, 2).contiguous(), analyze) for x in (s.q, s.k, s.v)]
    out, *_ = analyze(aten._flash_attention_forward.default, (*tokens, None, None, 16, 33, 0.0, False, False), {})
    got = legal.attention(s, way)[0].transpose(1, 2)
    assert not compare(got.contiguous(), out).sentence
    assert compare(got * 1.02, out).sentence
