"""A bias that a library would add in a pass of its own is added, and its gradient summed, in kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import keel
import keel_interp
from keel.plugin import BiasPass
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall

FORWARD, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"
EXTERNS = {
    name: dataclasses.replace(keel_interp.target.externs[name], bias=bias)
    for name, bias in ((FORWARD, BiasPass(added=2)), (BACKWARD, BiasPass(summed=2, mask=10)))
}


def calls(schedule: Schedule) -> list[ExternCall]:
    return [s for s in schedule.steps if isinstance(s, ExternCall)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_bias_is_added_where_the_result_is_used(scheduled: Any, dynamic: bool) -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.conv2d(x, w, b).relu()

    (schedule,) = scheduled(
        fn, torch.randn(2, 3, 8, 9), torch.randn(4, 3, 3, 3), torch.randn(4), externs=EXTERNS, dynamic=dynamic
    )
    (call,) = calls(schedule)
    assert call.args[2] is None
    assert sum(isinstance(s, KernelLaunch) for s in schedule.steps) == 1


def test_the_gradient_of_a_bias_is_a_sum(scheduled: Any) -> None:
    args = [t.requires_grad_() for t in (torch.randn(2, 3, 8), torch.randn(4, 3, 3), torch.randn(4))]
    _, backward = scheduled(lambda x, w, b: F.conv1d(x, w, b).sin(), *args, externs=EXTERNS)
    (call,) = calls(backward)
    assert call.args[10] == [True, True, False]
    assert call.results[2] == -1


def test_no_call_is_left_for_the_gradient_of_a_bias_alone(scheduled: Any) -> None:
    args = torch.randn(2, 3, 8), torch.randn(4, 3, 3), torch.randn(4).requires_grad_()
    _, backward = scheduled(lambda x, w, b: F.conv1d(x, w, b).sin(), *args, externs=EXTERNS)
    assert not calls(backward)


def test_a_pass_names_one_thing() -> None:
    extern = EXTERNS[FORWARD]
    for wrong in (BiasPass(), BiasPass(added=2, summed=2, mask=10), BiasPass(summed=2)):
        with pytest.raises(keel.KeelError, match="both or neither"):
            dataclasses.replace(extern, bias=wrong)
