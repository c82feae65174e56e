"""What may be said of results that nothing computed; cases of which the second call tells what the first does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from keel.opset import MEMBERS
from keel_conformance.cases import trivial
from keel_conformance.cases.case import Case
from keel_conformance.cases.domain import Domain
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.inputs import REDRAWN, draw_inputs
from keel_conformance.cases.plan import case_of

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


def signs(op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[str]:
    found = trivial.trivial_outcomes(op, args, kwargs)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ([1.0, 2.0], {"identity"}),
        ([0.0, -0.0], {"zeros", "identity", "extreme"}),
        ([1.0, 1.001], {"ones", "identity"}),
        ([NAN, NAN], {"nan", "identity", "extreme"}),
        ([1e30, -INF], {"identity", "extreme"}),
    ],
)
def test_what_a_copy_is_told_to_be(x: list[float], said: set[str]) -> None:
    assert signs(aten.clone.default, (torch.tensor(x),), {}) == said


def test_whole_numbers_and_truth_values_are_told_too() -> None:
    x = torch.tensor([3.0, 4.0])
    assert signs(aten.isnan.default, (x,), {}) == {"zeros"}
    assert signs(aten.gt.Scalar, (x, 1), {}) == {"ones", "nan", "identity"}
    assert signs(aten.gt.Scalar, (x, 3.5), {}) == frozenset()
    assert signs(aten.exp.default, (x[:0],), {}) == {"empty"}


def test_what_is_refused_is_told_nothing_of() -> None:
    assert trivial.trivial_outcomes(aten.mm.default, (torch.ones(2, 3), torch.ones(2, 3)), {}) is None


def test_right_results_are_not_left_in_memory() -> None:
    kept: list[torch.Tensor] = []

    def op(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept.append(x.exp())
        return kept[0], x[:2]

    x = torch.ones(4)
    signs(op, (x,), {})
    assert not torch.isclose(kept[0], torch.ones(4).exp()).any() and torch.equal(x, torch.ones(4))


def domain(name: str) -> Domain:
    found = domain_of(name)
    assert found is not None
    return found


def told(case: Case, call: int) -> frozenset[str]:
    target = {str(t): t for t in MEMBERS[case.op].targets}[case.overload]
    inputs = draw_inputs(case, call)
    return signs(target, inputs.args, inputs.kwargs)


@pytest.mark.parametrize("name", ["isposinf", "isnan", "eq", "exp", "var", "erfinv", "logical_and", "hypot"])
@pytest.mark.parametrize("shape", ["0d", "1", "8"])
def test_no_control_has_the_results_of_both_calls(name: str, shape: str) -> None:
    made, seen = domain(name), 0
    alone = {"extent": shape, "place": "alone"} if "extent" in made.factors else {"shape": shape}
    for values in ("huge", "tiny", "random", "specials"):
        chosen = {f: v[0] for f, v in made.factors.items()} | {
            "dtype": "f64",
            "layout": "contiguous",
            "values": values,
            **alone,
        }
        if "form" in chosen:
            chosen["form"] = next(f for f in made.factors["form"] if made.allows({**chosen, "form": f}))
        if name == "var":
            chosen["form"] = "corrected"  # of one element, too, it is a number
        if not made.allows(chosen):
            continue
        case, seen = case_of(made, chosen, 0), seen + 1
        constant = name == "var" and shape != "8"  # and that is 0
        # a truth value of one element is that of the argument as often as not
        assert constant or (told(case, 0) & told(case, 1)) <= {"identity"}, case.id
        assert REDRAWN not in draw_inputs(case, 0).notes
    assert seen


def test_what_tells_something_is_not_drawn_again() -> None:
    chosen = {f: v[0] for f, v in domain("exp").factors.items()} | {
        "dtype": "f32",
        "shape": "17x65",
        "layout": "contiguous",
        "values": "random",
    }
    case = case_of(domain("exp"), chosen, 0)
    assert REDRAWN not in draw_inputs(case, 1).notes


def test_of_a_class_at_the_end_of_the_range_the_second_call_is_decided() -> None:
    chosen = {f: v[0] for f, v in domain("var").factors.items()} | {
        "dtype": "f32",
        "form": "one",
        "extent": "129",
        "place": "last",
        "layout": "contiguous",
        "values": "huge",
    }
    case = case_of(domain("var"), chosen, 0)
    assert trivial.EXTREME in told(case, 0) and not told(case, 1)
    assert bool((draw_inputs(case, 0).args[0].abs() > 1e37).all())
