"""Results and gradients are judged against eager and float64; a wrong one is noticed, and a kink is not an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from keel import universe
from keel_bench.closure.accuracy_check import AccuracyResult, NoReference, judge_accuracy, leave, twin

Function = Callable[..., tuple[Tensor, ...]]


def example(fn: Function, *inputs: Tensor) -> universe.Example:
    def doubled() -> universe.Example:
        wide = (x.detach().double() if x.is_floating_point() else x for x in inputs)
        return example(fn, *(w.requires_grad_(x.requires_grad) for w, x in zip(wide, inputs, strict=True)))

    return universe.Example("made up", fn, inputs, doubled)


def judge(theirs: Function, ours: Function, grad: bool = False, low: float = 0.0) -> AccuracyResult:
    def draw(seed: int) -> universe.Example:
        generator = torch.Generator().manual_seed(seed)
        return example(theirs, (torch.rand(64, generator=generator) + low).requires_grad_(grad))

    return judge_accuracy(draw, ours)


def test_the_same_is_accurate() -> None:
    found = judge(lambda x: (x.sin(),), lambda x: (x.sin(),), grad=True)
    assert found.over == () and found.worst <= 1


def test_digits_that_are_lost_are_noticed() -> None:
    found = judge(lambda x: (torch.log1p(x * 1e-3),), lambda x: (torch.log(1 + x * 1e-3),))
    assert len(found.over) == 1 and found.over[0].startswith("result 0 is off by")


def test_a_wrong_gradient_is_noticed() -> None:
    found = judge(lambda x: (x * x,), lambda x: (x.detach() * x,), grad=True)
    assert [o.split(" is")[0] for o in found.over] == ["gradient 0"]


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (lambda x: (x.double(),), "result 0 is torch.float64"),
        (lambda x: (x[:3],), "result 0 is torch.float32 [3]"),
        (lambda x: (), "result 0 is there in eager only"),
    ],
)
def test_another_type_is_noticed(ours: Function, said: str) -> None:
    assert judge(lambda x: (x,), ours).over[0].startswith(said)


def test_integers_are_eagers() -> None:
    assert judge(lambda x: (x.argmax(),), lambda x: (x.argmax(),)).over == ()
    assert "1 of 1 elements" in judge(lambda x: (x.argmax(),), lambda x: (x.argmin(),)).over[0]


def test_nan_elsewhere_is_noticed() -> None:
    found = judge(lambda x: (x,), lambda x: (torch.where(x > 0.5, x, torch.nan),))
    assert "NaN" in found.over[0]


def test_a_jump_that_rounding_decides_is_no_error() -> None:
    def jump(x: Tensor) -> Tensor:  # every argument lies where it jumps
        return torch.where(x * 0 + 1 + x / x * 1e-9 > 1, x, -x)

    found = judge(lambda x: (jump(x),), lambda x: (jump(x),), low=1.0)
    assert found.over == ()


def test_other_strides_are_told() -> None:
    def draw(seed: int) -> universe.Example:
        return example(lambda x: (x + 0,), torch.rand(3, 4))

    assert judge_accuracy(draw, lambda x: ((x + 0).t().contiguous().t(),)).restrided == ("result 0",)


def test_what_does_not_run_in_float64_has_no_reference() -> None:
    def picky(x: Tensor) -> tuple[Tensor, ...]:
        if x.dtype == torch.float64:
            raise ValueError("only float32")
        return (x,)

    with pytest.raises(NoReference, match="ValueError: only float32"):
        judge(picky, picky)


def test_a_twin_has_the_same_memory_around_it() -> None:
    x = torch.arange(12.0).view(3, 4)[1:, ::2].requires_grad_()
    same = twin(x)
    assert torch.equal(same, x) and (same.stride(), same.storage_offset()) == (x.stride(), x.storage_offset())
    assert same.requires_grad and same.is_leaf and same.data_ptr() != x.data_ptr()
    assert torch.equal(torch.as_strided(same, (12,), (1,), 0), torch.arange(12.0))


def test_gradients_are_left_for_inputs_that_require_them() -> None:
    x, y = torch.rand(3, requires_grad=True), torch.rand(3)
    assert set(leave(lambda a, b: (a * b,), [x, y])) == {"result 0", "gradient 0"}
    with torch.no_grad():
        assert set(leave(lambda a, b: (a * b,), [x, y])) == {"result 0"}
