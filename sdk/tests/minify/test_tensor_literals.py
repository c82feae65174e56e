"""What is written as text comes back to the bit."""

from __future__ import annotations

import base64
import zlib
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor

from keel.minify import UNPACK, text_of
from keel.minify.failure import same

SPACE: dict[str, Any] = {"torch": torch, "inf": inf, "nan": nan, "base64": base64, "zlib": zlib}
exec("\n".join(UNPACK), SPACE)
TENSORS = {
    "special": torch.tensor([0.0, -0.0, inf, -inf, nan, 5e-324, 1e-45], dtype=torch.float64),
    "number": torch.tensor(2.5),
    "half": torch.randn(3, 4).to(torch.bfloat16),
    "complex": torch.tensor([complex(-0.0, nan), complex(1, -inf)]),
    "bool": torch.tensor([[True, False]]),
    "large": torch.randn(100, 30),
    "empty": torch.empty(0, 3),
    "wide": torch.tensor([2**63, 2**64 - 1], dtype=torch.uint64),
    "narrow": torch.tensor([-128, 127], dtype=torch.int8),
    "transposed": torch.randn(3, 5).t(),
    "expanded": torch.randn(1, 5).expand(3, 5),
    "gapped": torch.randn(4, 9)[1:3, ::2],
    "flags": torch.rand(4, 6).gt(0.5)[:, ::2],
    "full": torch.full((20, 20), 3),
    "zeros": -torch.zeros(40),
    "float8": torch.randn(5).to(torch.float8_e5m2),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name: str) -> None:
    x = TENSORS[name]
    found = eval(text_of(x), SPACE)
    assert isinstance(found, Tensor) and found.stride() == x.stride() and found.dtype == x.dtype
    plain = x.resolve_conj()
    assert same(found, plain) or bool(((found == plain) | found.isnan()).all())


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_on_a_device(name: str) -> None:
    x = TENSORS[name]
    found = eval(text_of([x], device="meta"), SPACE)[0]
    assert found.is_meta and found.shape == x.shape and found.stride() == x.stride() and found.dtype == x.dtype


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        2.5,
        inf,
        "a'b",
        complex(1, -2),
        torch.float16,
        torch.strided,
        torch.channels_last,
        torch.device("cpu"),
        [1, (2,), ()],
        {"a": [None]},
    ],
)
def test_values(value: Any) -> None:
    assert eval(text_of(value), SPACE) == value


def test_names_stand_for_tensors_that_have_one() -> None:
    x = torch.ones(2)
    assert text_of((x, [x], 1), {id(x): "x0"}) == "(x0, [x0], 1)"


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="Generator"):
        text_of(torch.Generator())
    with pytest.raises(ValueError, match="layout"):
        text_of(torch.eye(2).to_sparse())
