"""Arguments keep their values and layout in guarded memory, and reads and writes outside them are detected."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from keel_conformance.harness.red_zones import (
    ZONE,
    guard_arguments,
    guard_tensor,
    is_dense,
    overlaps,
    same_bits,
    snapshot,
)
from keel_conformance.results.fault import Fault

TENSORS = {
    "plain": torch.randn(3, 5),
    "gapped": torch.randn(4, 6)[1:3, 1:5:2],
    "expanded": torch.randn(1, 5).expand(3, 5),
    "number": torch.tensor(1.0),
    "empty": torch.empty(0, 3),
    "misaligned": torch.randn(7)[1:],
    "half": torch.randn(9).to(torch.bfloat16)[3:],
    "bool": torch.tensor([True, False]),
    "byte": torch.arange(5).byte(),
    "complex": torch.randn(3, dtype=torch.complex64),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "gapped conjugate": torch.randn(6, 7, dtype=torch.complex64)[1:3, 1:5:2].conj(),
    "expanded conjugate": torch.randn(2, 1, dtype=torch.complex64).expand(2, 3).conj(),
    "negated": torch.randn(5, dtype=torch.complex64).conj()[::2].imag,
    "flipped": torch.randn(2, 3, 4).permute(2, 0, 1),
    "windows": torch.randn(9).as_strided((4, 3), (2, 1)),
}
gapped = TENSORS["gapped"]


@pytest.mark.parametrize("name", TENSORS)
def test_a_guarded_tensor_is_the_same(name: str) -> None:
    x = TENSORS[name]
    g = guard_tensor(x, "x")
    assert (g.tensor.shape, g.tensor.dtype) == (x.shape, x.dtype) and same_bits(g.tensor, x)
    assert g.tensor.stride() == x.resolve_conj().resolve_neg().stride() and g.fault() is None
    assert g.tensor.is_conj() is g.tensor.is_neg() is False
    if x.numel():
        assert g.tensor.data_ptr() % 64 == x.resolve_conj().resolve_neg().storage_offset() * x.element_size() % 64
        assert g.interval[0] + ZONE <= g.tensor.data_ptr()
    assert same_bits(snapshot(x), x) and snapshot(x).stride() == x.stride()


def poke(x: Tensor, offset: int) -> None:
    x.as_strided((1,), (1,), x.storage_offset() + offset).fill_(1)


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (0, "It wrote to argument x"),
        (-1, "It wrote before the memory of argument x"),
        (9, "It wrote after the memory of argument x"),
        (1, "It wrote in the gaps of argument x"),
        (2, "It wrote to argument x"),
    ],
)
def test_writing_is_seen(offset: int, said: str) -> None:
    g = guard_tensor(gapped, "x")
    poke(g.tensor, offset)
    fault = g.fault()
    assert ("" if fault is None else fault.sentence).startswith(said)


def test_reading_beside_a_tensor_gives_nan() -> None:
    g = guard_tensor(gapped, "x")
    for offset in (-1, 1, 9):
        assert g.tensor.as_strided((1,), (1,), g.tensor.storage_offset() + offset).isnan()


def test_arguments_are_placed_each_once_at_fresh_addresses() -> None:
    x = torch.full((4,), 1.1)  # none of its bytes is 0
    one, other = (guard_arguments((x, [x, 2.5], None), {"out": {"y": x}}) for _ in range(2))
    assert len(one.guards) == 1 and one.args[1][1] == 2.5 and one.args[2] is None
    assert one.args[0] is one.args[1][0] is one.kwargs["out"]["y"]
    assert one.args[0].data_ptr() not in (x.data_ptr(), other.args[0].data_ptr())
    one.args[0].zero_()
    wrote = Fault("argument written", "It wrote to argument 0 (16 bytes).")
    assert one.faults() == [wrote] and other.faults() == []


def test_bits_are_compared() -> None:
    zero, nan = torch.tensor([0.0]), torch.tensor([float("nan")])
    assert not same_bits(zero, -zero) and same_bits(nan, nan.clone()) and not same_bits(zero, zero.double())
    assert same_bits(float("nan"), float("nan")) and same_bits(2, 2) and not same_bits(2, 2.0)
    assert not same_bits(zero, 0.0)


def test_density_is_told() -> None:
    assert [n for n, x in TENSORS.items() if x.numel() and not is_dense(x)] == [
        "gapped",
        "expanded",
        "gapped conjugate",
        "expanded conjugate",
        "negated",
        "windows",
    ]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=8))
def test_overlaps_are_found_as_by_comparing_all(spans: list[tuple[int, int]]) -> None:
    intervals = [(a, a + n, k) for k, (a, n) in enumerate(spans)]
    found = {frozenset(pair) for pair in overlaps(intervals)}
    assert found == {frozenset((k, j)) for a, b, k in intervals for c, d, j in intervals if k < j and a < d and c < b}
