"""A generic mutant goes wrong where a call has something of its class, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from keel.opset import MEMBERS
from keel_conformance.cases.case import Inputs
from keel_conformance.witnesses.generic_mutants import CLASSES, Execution

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


def executed(target: Any, member: str, *args: Any) -> Execution:
    result = target(*args)
    return Execution(MEMBERS[member], target, args[0].dtype, Inputs(args), (result,))


def copied(x: Tensor) -> Execution:
    """A call whose result is its argument."""
    return executed(aten.clone.default, "convert", x)


def wrong(name: str, call: Execution) -> Tensor | None:
    results = CLASSES[name].wrong(call)
    if results is None:
        return None
    (result,) = results
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize(
    ("name", "has", "becomes", "lacks"),
    [
        ("NaN", [NAN, 2.0], [0.0, 2.0], [INF, 2.0]),
        ("infinity", [-INF, 2.0], [torch.finfo().min, 2.0], [NAN, 2.0]),
        ("negative zero", [-0.0, 2.0], [0.0, 2.0], [0.0, 2.0]),
        ("subnormal", [1e-40, 2.0], [0.0, 2.0], [2e-38, 0.0]),
        ("large", [-1e30, 2.0], [-INF, 2.0], [1e19, INF]),
        ("small", [1e-30, 2.0], [0.0, 2.0], [1e-40, 0.0]),
        ("low bits", [1 + 2.0**-20, 2.0], [1.0, 2.0], [1.5, INF]),
        ("halfway", [2.5, 2.0], [2.5 + 2.0**-22, 2.0], [2.25, NAN]),
        ("zero", [-0.0, 2.0], [-torch.finfo().smallest_normal, 2.0], [1e-40, 2.0]),
        ("one", [-1.0, 2.0], [-1 - 2.0**-23, 2.0], [0.5, 2.0]),
        ("equal", [2.0, 2.0], [2.0, 2 + 2.0**-22], [1.0, 2.0]),
        ("0", [0, 2], [1, 2], [1, 2]),
        ("negative", [-1, 2], [2**63 - 1, 2], [0, 2]),
        ("wide", [2**32 + 5, 2], [5, 2], [2**31 - 1, 2]),
        ("odd above 2^53", [2**53 + 1, 2], [2**53, 2], [2**53, 2]),
        ("extreme", [-(2**63), 2], [-(2**63) + 1, 2], [2**62, 2]),
        ("true", [True, False], [False, False], [False, False]),
        ("false", [True, False], [True, True], [True, True]),
        ("lone", [False, True, False], [False, False, False], [False, False, False]),
    ],
)
def test_values_of_a_class_are_mistaken(name: str, has: list[Any], becomes: list[Any], lacks: list[Any]) -> None:
    found = wrong(name, copied(torch.tensor(has)))
    assert found is not None
    torch.testing.assert_close(found, torch.tensor(becomes), rtol=0, atol=0, equal_nan=True)
    assert found.signbit().tolist() == torch.tensor(becomes).signbit().tolist()
    assert wrong(name, copied(torch.tensor(lacks))) is None


@pytest.mark.parametrize(
    ("name", "shape", "other"),
    [
        ("empty", (0,), (1,)),
        ("no rows", (0, 3), (3, 0)),
        ("no columns", (3, 0), (0, 3)),
        ("0-d", (), (1,)),
        ("one element", (1, 1), ()),
    ],
)
def test_results_of_a_size_are_not_written(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    call = executed(aten.sum.default, "sum", torch.ones(shape))
    found = wrong(name, call)
    assert found is not None
    assert not torch.equal(found, call.right[0])
    assert wrong(name, executed(aten.sum.default, "sum", torch.ones(other))) is None


def test_a_call_whose_results_have_no_elements_ends_with_an_error() -> None:
    with pytest.raises(RuntimeError, match="no elements"):
        wrong("empty", copied(torch.ones(0)))


def test_elements_behind_the_last_vector_and_behind_16_bits_are_others() -> None:
    x = torch.arange(65_537 + 3, dtype=torch.float32)
    tail, many = wrong("tail", copied(x[:11])), wrong("many", copied(x))
    assert tail is not None and many is not None
    assert tail.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0]
    assert many[-4:].tolist() == [0, 1, 2, 3]
    assert wrong("tail", copied(x[:16])) is wrong("many", copied(x[:65_536])) is None


def test_rows_and_columns_of_equal_extents_are_exchanged() -> None:
    square, row = torch.zeros(2, 2), torch.tensor([1.0, 2.0])
    by_row, by_column = (
        executed(aten.add.Tensor, "add", square, row),
        executed(aten.add.Tensor, "add", square, row[:, None]),
    )
    assert torch.equal(wrong("row", by_row), by_column.right[0])  # type: ignore[arg-type]
    assert torch.equal(wrong("column", by_column), by_row.right[0])  # type: ignore[arg-type]
    assert wrong("column", by_row) is wrong("row", executed(aten.add.Tensor, "add", torch.zeros(3, 2), row)) is None


def test_strides_and_offsets_are_ignored_and_the_layout_stays() -> None:
    memory = torch.arange(7.0)
    transposed, later = memory[:6].view(2, 3).t(), memory[3:]
    found = wrong("strides", copied(transposed))
    assert found is not None
    assert found.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert found.stride() == transposed.clone().stride()
    assert wrong("offset", copied(later)).tolist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert wrong("strides", copied(later)) is wrong("offset", copied(transposed)) is None
