"""Freedoms of an implementation change nothing in a compiled decomposition, and are heard by tensors of the oracles."""

from __future__ import annotations

import torch
from torch import Tensor

from keel.opset import MEMBERS, Freedoms, may_be_off, may_compute, may_round


class Listening(Freedoms, torch.Tensor):
    """A tensor that answers with numbers."""

    def may_be_off(self, share: float, least: float) -> Tensor:
        return torch.tensor([share, least], dtype=torch.float64)

    def may_be(self, other: Tensor) -> Tensor:
        return other


def test_a_plain_tensor_is_returned_as_it_is() -> None:
    x = torch.ones(3)
    assert may_round(x, torch.float16) is x and may_be_off(x, 0.5) is x
    assert may_compute(x, lambda: 1 / 0) is x  # type: ignore[arg-type, return-value]


def test_a_rounding_is_relative_and_ends_at_subnormal_numbers() -> None:
    x = torch.ones(3).as_subclass(Listening)
    assert may_round(x, torch.float16).tolist() == [2.0**-11, 2.0**-25]
    assert may_round(x, torch.bfloat16).tolist()[0] == 2.0**-8
    assert may_round(x, torch.float32) is x
    assert may_be_off(x, 2.0**-13).tolist() == [2.0**-13, 0.0]
    assert may_compute(x, lambda: torch.zeros(2)).tolist() == [0.0, 0.0]


def test_clauses_say_which_composites_compute_in_float32() -> None:
    promised = {name for name, op in MEMBERS.items() if op.kind == "composite" and op.in_float32}
    assert {"sdpa", "sdpa_backward", "softmax", "layer_norm", "var", "batch_norm_functional"} <= promised
    assert promised.isdisjoint({"addmm", "gelu", "mse_loss", "multi_head_attention"})
