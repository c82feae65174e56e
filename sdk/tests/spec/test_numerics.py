"""Facts of an operator as a function of numbers: which contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from keel.spec import MEMBERS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Op
from keel.types import leaves


@pytest.mark.parametrize(
    "facts",
    [
        {"steps": True, "lipschitz": 1.0},
        {"lipschitz": 0.0},
        {"lipschitz": -1.0},
        {"series": True, "rounded_once": True},
        {"identities": (-1.0, 1.0)},
        {"identities": (float("nan"), None)},
        {"interval": (1.0, 1.0)},
    ],
)
def test_facts_that_contradict_each_other_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"function|Lipschitz|series|Identities|interval"):
        Numerics(**facts)


def _applied(op: Op, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = op.targets[0](x, y)
    return result


TWO_OPERANDS = [op for op in MEMBERS.values() if op.numerics.identities]


@pytest.mark.parametrize("op", TWO_OPERANDS, ids=lambda op: op.name)
def test_identities_and_what_needs_no_rounding_hold_for_eager(op: Op) -> None:
    values = torch.tensor([-7.3, -0.25, 0.0, 1.0, 2.5, 1e30], dtype=torch.float64)
    first, second = op.numerics.identities
    for number in (-1.0, 1.0):
        if first is not None:
            assert _applied(op, torch.full_like(values, number * first), values).abs().equal(values.abs())
        if second is not None:
            assert _applied(op, values, torch.full_like(values, number * second)).abs().equal(values.abs())
    if op.numerics.keeps_dyadics:
        x, y = torch.meshgrid(*2 * [torch.arange(-40, 41) / 16], indexing="ij")
        assert _applied(op, x, y).double().equal(_applied(op, x.double(), y.double()))
    if op.numerics.zero_absorbs:
        zeros = torch.zeros_like(values)
        assert not (_applied(op, zeros, values).any() or _applied(op, values, zeros).any())


def _samples(op: Op) -> Iterator[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]]:
    """The tensors that a primitive gets and gives on its samples in float64; numbers that it is given are tensors."""
    assert op.samples is not None
    for sample in op.samples(torch.float64 if torch.float64 in op.dtypes else op.dtypes[0]):
        given = [
            torch.as_tensor(x)
            for x in leaves((sample.args, *sample.kwargs.values()))
            if isinstance(x, torch.Tensor | int | float)
        ]
        found = op.targets[0](*sample.args, **sample.kwargs)
        yield given, [x for x in leaves((found,)) if isinstance(x, torch.Tensor)]


def _of(results: Results) -> list[Op]:
    return [op for op in MEMBERS.values() if op.numerics.results is results]


FILLS = {0.0, 1.0}
"""What stands beside the elements: no number is given for it."""


@pytest.mark.parametrize("op", [*_of(Results.MOVED), *_of(Results.CHOSEN)], ids=lambda op: op.name)
def test_elements_that_are_moved_or_chosen_are_of_operands(op: Op) -> None:
    some = False
    for given, found in _samples(op):
        known = FILLS | {
            float(v)
            for x in given
            if not x.is_complex()
            for y in (x, x.to(found[0].dtype.to_real()))
            for v in y.flatten().tolist()
        }
        known |= {v for x in given if x.is_complex() for z in x.flatten().tolist() for v in (z.real, z.imag, -z.imag)}
        parts = torch.view_as_real(found[0].resolve_conj()) if found[0].is_complex() else found[0]
        made = {float(v) for v in parts.flatten().tolist()}
        assert all(v in known or v != v for v in made)
        some = some or bool(made)
    assert some


def _whole(x: Any) -> Any:
    return x.round() if isinstance(x, torch.Tensor) else x


@pytest.mark.parametrize("op", _of(Results.SUMS), ids=lambda op: op.name)
def test_sums_of_integers_are_integers(op: Op) -> None:
    assert op.samples is not None
    for sample in op.samples(torch.float64):
        found = op.targets[0](*map(_whole, sample.args), **sample.kwargs)
        for x in leaves((found,)):
            assert x is None or bool((~x.isfinite() | (x == x.round())).all())


@pytest.mark.parametrize("op", [op for op in MEMBERS.values() if op.numerics.one_term_exact], ids=lambda op: op.name)
def test_the_sum_of_one_element_is_that_element(op: Op) -> None:
    x = torch.tensor([[0.1], [-3e38], [1e-45]], dtype=torch.float32)
    assert op.targets[0](x, [1]).equal(x[:, 0])


@pytest.mark.parametrize("op", [op for op in MEMBERS.values() if op.numerics.subtracts], ids=lambda op: op.name)
def test_an_operand_that_is_subtracted_has_the_opposite_sign(op: Op) -> None:
    x = torch.tensor([-7.5, 2.25])
    given = {name: x if name == op.numerics.subtracts else torch.zeros(2) for name in op.operands}
    assert op.targets[0](**given).equal(-x)


@pytest.mark.parametrize("op", [op for op in MEMBERS.values() if op.numerics.converts], ids=lambda op: op.name)
def test_a_conversion_is_exact_by_its_budget_and_rounds(op: Op) -> None:
    assert all(b.ulps == 0 for b in op.budget.values())
    assert op.targets[0](torch.tensor([0.1]), dtype=torch.float16).double() != 0.1


STATED = [op for op in MEMBERS.values() if op.numerics.scaled_and_shifted or op.numerics.split_sums]


@pytest.mark.parametrize("op", STATED, ids=lambda op: op.name)
def test_alternatives_are_about_parameters(op: Op) -> None:
    facts = op.numerics
    named = {*facts.scaled_and_shifted, *((facts.split_sums.x, facts.split_sums.mean) if facts.split_sums else ())}
    for target in op.targets:
        assert named <= {a.name for a in target._schema.arguments}  # type: ignore[attr-defined]


@pytest.mark.parametrize("op", [op for op in MEMBERS.values() if op.numerics.pole], ids=lambda op: op.name)
def test_a_function_grows_towards_its_poles(op: Op) -> None:
    pole = op.numerics.pole
    assert pole is not None
    for place in [pole.at] if pole.every is None else [pole.at - pole.every, pole.at - 2 * pole.every]:
        operands = [torch.full((3,), -1.5, dtype=torch.float64) for _ in op.operands]
        operands[pole.operand] = place + torch.tensor([1e-3, 1e-6, 1e-9], dtype=torch.float64)
        far, near, nearest = op.targets[0](*operands).abs().tolist()
        assert far < near < nearest


@pytest.mark.parametrize(
    "op", [op for op in MEMBERS.values() if op.numerics.interval != Numerics().interval], ids=lambda op: op.name
)
def test_most_of_a_function_is_where_it_is_defined(op: Op) -> None:
    assert op.samples is not None
    sample = next(iter(op.samples(torch.float64)))
    given = torch.linspace(*op.numerics.interval, 1000, dtype=torch.float64)
    found = op.targets[0](given, *sample.args[1:], **sample.kwargs)
    assert float(found.isfinite().double().mean()) > 0.6
    assert len(found.unique()) > 90
