"""Which calls keep what their members require."""

from __future__ import annotations

import pytest
import torch

from keel.loops.symbolic_sizes import symbol
from keel.spec import MEMBERS, broken
from keel.types import Call, TensorType

aten = torch.ops.aten


def matrix(dtype: torch.dtype, *shape: object) -> TensorType:
    return TensorType.dense(dtype, shape)


F, B = matrix(torch.float32, 3, 5), matrix(torch.bool, 3, 5)


@pytest.mark.parametrize(
    ("op", "args", "sentence"),
    [
        (aten.sub.Tensor, (F, F), None),
        (aten.sub.Tensor, (B, F), MEMBERS["sub"].requires[1].sentence),
        (
            aten.sub.Tensor,
            (F, matrix(torch.float32, 4)),
            "The shapes broadcast: aligned at the last dimension, sizes are equal or 1.",
        ),
        (aten.select.int, (F, 0, 2), None),
        (aten.select.int, (F, 0, 3), MEMBERS["select"].requires[1].sentence),
        (aten.select.int, (F, -1, -5), None),
        (aten.cos.default, (F,), None),
    ],
)
def test_the_sentence_of_what_is_broken(op, args, sentence) -> None:
    assert broken(Call(op, args, {}, (F,))) == sentence


def test_sizes_that_a_run_tells_are_taken_to_fit() -> None:
    unknown = matrix(torch.float32, symbol("s0"), 5)
    assert broken(Call(aten.select.int, (unknown, 0, 3), {}, (F,))) is None
