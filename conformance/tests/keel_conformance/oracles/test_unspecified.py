"""What eager PyTorch does not settle is open, and nothing else."""

from __future__ import annotations

import torch

from keel.opset import MEMBERS
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles.judge import judge
from keel_conformance.oracles.unspecified import unspecified_elements

aten = torch.ops.aten


def test_a_remainder_that_eager_loses_is_open():
    x = torch.tensor([3e38] * 16 + [torch.nan, torch.inf, 7.0, 7.0])
    y = torch.tensor([0.25] * 16 + [2.0, 2.0, 0.0, 2.0])
    lost = torch.full((20,), torch.nan)
    lost[19] = 1.0
    (places,) = unspecified_elements(MEMBERS["fmod"], {"self": x, "other": y}, [lost])
    assert places.tolist() == [True] * 16 + [False] * 4


def test_what_eager_loses_is_open_where_results_are_rounded_too():
    x, y = torch.tensor([1e300, 7.0, 5.0] * 8, dtype=torch.float64), torch.tensor([1e-10, 2.5, 2.5] * 8).double()
    eager = aten.remainder.Tensor(x, y)
    assert eager[0].isnan(), "this PyTorch loses nothing: the opening can go"
    case = Case("remainder", "", "op", "core", "aten.remainder.Tensor")
    for at, status in ((0, "pass"), (1, "fail")):
        given = eager.nan_to_num(0.0)
        given[at] = 0.25
        assert judge(case, Inputs((x, y)), [given]).status == status


def test_a_division_of_integers_by_zero_is_open():
    x, y = torch.tensor([1, 5, -(2**63)]), torch.tensor([0, 2, -1])
    (places,) = unspecified_elements(MEMBERS["remainder"], {"self": x, "other": y}, [torch.zeros(3, dtype=torch.int64)])
    assert places.tolist() == [True, False, True]


def test_the_nearest_is_right_where_eager_rounds_twice() -> None:
    x, op = torch.tensor([1 + 2.0**-8 + 2.0**-52, 1.5], dtype=torch.float64), torch.ops.aten._to_copy.default
    case = Case("convert", "", "op", "core", str(op))
    for first, status in ((1 + 2.0**-7, "pass"), (1.0, "pass")):
        got = torch.tensor([first, 1.5]).bfloat16()
        assert judge(case, Inputs((x,), {"dtype": torch.bfloat16}), [got]).status in (status, "vacuous")
    wrong = torch.tensor([1.0, 1.0]).bfloat16()
    assert judge(case, Inputs((x,), {"dtype": torch.bfloat16}), [wrong]).status == "fail"


def test_what_nan_gives_beside_an_interval_is_open() -> None:
    grad, x = torch.ones(32), torch.full((32,), torch.nan)
    x[0] = 0.25
    op = aten.logit_backward.default
    case = Case("logit_backward", "", "op", "core", str(op))
    for of_nan in (0.0, torch.nan):
        for first, eps, status in (
            (1 / (0.25 * 0.75), 0.1, "pass"),
            (7.0, 0.1, "fail"),
            (1 / (0.25 * 0.75), None, "pass" if of_nan != of_nan else "fail"),
        ):
            got = torch.full((32,), of_nan)
            got[0] = first
            assert judge(case, Inputs((grad, x, eps)), [got]).status == status


def test_the_commonest_beside_nan_is_eagers_or_the_least() -> None:
    x = torch.tensor([[2.0, 1, 1, torch.nan, 0, 0, 3], [2, 2, 1, 0, 0, 5, 5]])
    case = Case("mode", "", "op", "core", "aten.mode.default")
    for values, places, status in (
        ([0.0, 0.0], [4, 3], "pass"),
        ([2.0, 0.0], [0, 3], "fail"),
        ([0.0, 2.0], [4, 0], "fail"),
        ([torch.nan, 0.0], [3, 3], "fail"),
    ):
        given = [torch.tensor(values), torch.tensor(places)]
        assert judge(case, Inputs((x, 1)), given).status == status


def test_one_element_for_all_may_be_rounded_first() -> None:
    x, y = torch.linspace(1, 7, 257).half(), torch.tensor(0.37, dtype=torch.float16)
    apart = (y.double() * 0.7).half() - y.double() * 0.7
    off = ((x.double() + y.double() * 0.7) + 40 * apart).half()
    case = Case("add", "", "op", "core", "aten.add.Tensor")
    right = (x.double() + y.double() * 0.7).half()
    assert judge(case, Inputs((x, y), {"alpha": 0.7}), [right]).status == "pass"
    assert judge(case, Inputs((x, y), {"alpha": 0.7}), [(x.float() + (y.float() * 0.7).half()).half()]).status == "pass"
    assert judge(case, Inputs((x, y), {"alpha": 0.7}), [off]).status == "fail"
