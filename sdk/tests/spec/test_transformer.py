"""Whole layers of a transformer give what eager's fused ones give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.closure import Ending, dynamo_backend, ending

from .decomposed import holds

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_masked_softmax(kind: int) -> None:
    scores = torch.randn(2, 3, 4, 4)
    mask = torch.rand({0: (4, 4), 1: (2, 4), 2: (2, 3, 4, 4)}[kind]) > 0.6
    mask[..., 0] = False
    holds(aten._masked_softmax.default, scores, mask, 3, kind)


def test_masked_softmax_backward() -> None:
    mask = torch.rand(2, 3, 4, 4) > 0.6
    mask[..., 0] = False
    out = aten._masked_softmax(torch.randn(2, 3, 4, 4), mask, 3, 2)
    holds(aten._masked_softmax_backward.default, torch.randn(2, 3, 4, 4), out, mask, 3)


def test_a_row_without_anything_to_see_is_eagers() -> None:
    mask = torch.zeros(1, 1, 2, 4, dtype=torch.bool)
    mask[..., 1, :] = True
    holds(aten._masked_softmax.default, torch.randn(1, 1, 2, 4), mask, 3, 2)


@pytest.mark.slow
def test_queries_keys_and_values() -> None:
    holds(aten._transform_bias_rescale_qkv.default, torch.randn(2, 5, 24), torch.randn(24), 2)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("alike", ["all", "keys and values", "none"])
def test_attention_of_several_heads(weights: tuple[bool, bool], alike: str) -> None:
    q, k, v = (torch.randn(2, 5, 8) for _ in range(3))
    k, v = {"all": (q, q), "keys and values": (k, k), "none": (k, v)}[alike]
    given = (8, 2, torch.randn(24, 8), torch.randn(24), torch.randn(8, 8), torch.randn(8))
    holds(aten._native_multi_head_attention.default, q, k, v, *given, None, *weights)


def layer(**more: Any) -> torch.nn.TransformerEncoderLayer:
    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **more).eval()


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"activation": "gelu"}, {"norm_first": True}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_an_encoder_layer_compiles(more: dict[str, Any], masked: bool) -> None:
    module, x = layer(**more), torch.randn(2, 5, 8)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if masked else None
    ends: list[Ending] = []

    def watch(captured: Any) -> Ending:
        ends.append(ending(captured))
        return ends[-1]

    torch.compiler.reset()
    with torch.no_grad():
        want = module(x, src_key_padding_mask=hidden)
        got = torch.compile(module, backend=dynamo_backend(watch))(x, src_key_padding_mask=hidden)
    torch.testing.assert_close(got, want)
    fused = {str(n.target) for end in ends for n in end.captured.gm.graph.nodes}
    assert "aten._transformer_encoder_layer_fwd.default" in fused and not any(end.outside for end in ends)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True])
def test_an_attention_layer_compiles(weights: bool) -> None:
    module, x = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    ends: list[Ending] = []

    def watch(captured: Any) -> Ending:
        ends.append(ending(captured))
        return ends[-1]

    def attend(x: torch.Tensor) -> Any:
        return module(x, x, x, need_weights=weights, key_padding_mask=hidden)

    torch.compiler.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(attend, backend=dynamo_backend(watch))(x), attend(x))
    assert ends and not any(end.outside for end in ends)
