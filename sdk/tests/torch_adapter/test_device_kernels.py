"""Whether a device has a kernel for an operator, by what is registered for its dispatch key."""

from __future__ import annotations

import pytest
import torch

from keel import aten_externs
from keel.torch_adapter import has_kernel, operator_named
from keel.torch_adapter.device_kernels import _CALLS

aten = torch.ops.aten
ON_VENDORS_DEVICES = {"aten.convolution.default", "aten.convolution_backward.default"}
"""Operators that only a vendor's device runs by a kernel of another name."""


@pytest.mark.parametrize(
    "op",
    [
        aten.mm.default,  # directly
        aten.add.Tensor,  # by the form that fills its result
        aten.topk.default,
        aten.kthvalue.default,
        aten.exponential.default,  # by the form that works in place
        aten.rand.default,  # by an operator that it calls
        aten.select.int,  # a view
    ],
)
def test_the_host_has_kernels(op: torch._ops.OpOverload) -> None:
    assert has_kernel(op, "cpu")


def test_an_operator_that_only_decomposes_has_no_kernel() -> None:
    assert not has_kernel(aten.matmul.default, "cpu")


@pytest.mark.parametrize("device", ["privateuseone", "acme"])
def test_nothing_is_known_about_a_device_without_kernels(device: str) -> None:
    assert has_kernel(aten.mm.default, device)


def test_every_extern_has_a_kernel_on_the_host() -> None:
    """So no operator is left out on a device that has all kernels."""
    assert all(has_kernel(operator_named(n), "cpu") for n in aten_externs("privateuseone").keys() - ON_VENDORS_DEVICES)


def test_called_operators_exist() -> None:
    torch._C._dispatch_has_kernel_for_dispatch_key("aten::_copy_from", "CPU")
    for op in (*_CALLS, *_CALLS.values()):
        assert torch._C._dispatch_has_kernel(op)
