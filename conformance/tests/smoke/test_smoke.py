"""The smoke suite passes what is right and catches what is not."""
import dataclasses

import pytest
import torch

import keel_eager
from keel_conformance.smoke.cases import cases
from keel_conformance.smoke.trial import compare, judge

BY_NAME = {case.name: case for case in cases()}


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()



def sick(change):
    """Eager PyTorch with its results changed."""
    def compile(gm):
        return lambda *args: tuple(change(r) for r in gm(*args))
    return dataclasses.replace(keel_eager.backend, name="sick", last_resort=False, compile=compile)


def test_names_are_unique():
    assert len(BY_NAME) == len(cases())


@pytest.mark.parametrize("name", ["softmax", "add/special", "argmax/ties", "offset-and-gaps", "empty"])
def test_cpp_passes(name):
    assert judge(BY_NAME[name], "cpp").status == "pass"


def test_what_is_right_passes():
    assert judge(BY_NAME["mlp"], sick(lambda r: r)).status == "pass"


@pytest.mark.parametrize(("change", "case"), [
    (torch.zeros_like, "exp/sizes"), (torch.nan_to_num, "log/special"), (lambda r: r * (1 + 1e-5), "softmax"),
    (lambda r: r + torch.rand_like(r), "sum/rows")])
def test_what_is_wrong_fails(change, case):
    verdict = judge(BY_NAME[case], sick(change))
    assert verdict.status == "fail" and verdict.why


def test_a_crash_is_an_error():
    def crash(_):
        raise RuntimeError("out of juice")
    verdict = judge(BY_NAME["sum/rows"], sick(crash))
    assert verdict.status == "error" and "out of juice" in verdict.why


def test_a_backend_that_takes_nothing_is_not_judged():
    refuses = dataclasses.replace(sick(lambda r: r), supports=lambda call: "sick takes nothing.")
    assert judge(BY_NAME["sum/rows"], refuses).status == "not claimed"


def test_messages_name_what_differs():
    x = torch.ones(3)
    assert "strides" in compare(torch.ones(2, 3).t(), torch.ones(3, 2), torch.ones(3, 2, dtype=torch.float64))
    assert compare(x, x, x.double()) == ""
