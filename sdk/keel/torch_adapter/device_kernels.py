"""Whether a device has a kernel of its own for an operator.

On a vendor's device, an operator without a kernel raises, or falls back to the host: PyTorch then copies its arguments
to the host and its results back, at each call. Many of ATen's operators have a kernel in another form: an operator
that is declared by its ``out=`` form, by its in-place form, or by another operator that it calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch

_COPIES = [
    "aten::_to_copy",
    "aten::as_strided_scatter",
    "aten::clone",
    "aten::constant_pad_nd",
    "aten::copy",
    "aten::diagonal_backward",
    "aten::diagonal_scatter",
    "aten::repeat",
    "aten::select_backward",
    "aten::select_scatter",
    "aten::slice_backward",
    "aten::slice_scatter",
]
"""Operators that only copy: on vendors' devices by ``_copy_from``. The dispatcher's names, as below."""
_FILLS = [
    "aten::full",
    "aten::full_like",
    "aten::new_full",
    "aten::new_ones",
    "aten::new_zeros",
    "aten::ones",
    "aten::ones_like",
    "aten::scalar_tensor",
    "aten::zeros",
    "aten::zeros_like",
]
"""Operators that fill new memory with one value."""
_CALLS: Mapping[str, str] = {
    **dict.fromkeys(_COPIES, "aten::_copy_from"),
    **dict.fromkeys(_FILLS, "aten::fill_.Scalar"),
    "aten::_unsafe_index_put": "aten::_index_put_impl_",
    "aten::arange": "aten::arange.start_out",
    "aten::arange.start": "aten::arange.start_out",
    "aten::arange.start_step": "aten::arange.start_out",
    "aten::bernoulli": "aten::bernoulli_.float",
    "aten::bernoulli.Tensor": "aten::bernoulli_.Tensor",
    "aten::bernoulli.p": "aten::bernoulli_.float",
    "aten::convolution": "aten::convolution_overrideable",
    "aten::convolution_backward": "aten::convolution_backward_overrideable",
    "aten::cummax": "aten::_cummax_helper",
    "aten::cummin": "aten::_cummin_helper",
    "aten::empty_like": "aten::empty_strided",
    "aten::empty_permuted": "aten::empty_strided",
    "aten::index_put": "aten::_index_put_impl_",
    "aten::logcumsumexp": "aten::_logcumsumexp",
    "aten::masked_fill.Scalar": "aten::masked_fill_.Scalar",
    "aten::mv": "aten::addmv.out",
    "aten::new_empty": "aten::empty_strided",
    "aten::new_empty_strided": "aten::empty_strided",
    "aten::normal_functional": "aten::normal_",
    "aten::rand": "aten::uniform_",
    "aten::rand.generator": "aten::uniform_",
    "aten::rand_like": "aten::uniform_",
    "aten::randint": "aten::random_.from",
    "aten::randint.low": "aten::random_.from",
    "aten::randint_like": "aten::random_.from",
    "aten::randint_like.low_dtype": "aten::random_.from",
    "aten::randn": "aten::normal_",
    "aten::randn.generator": "aten::normal_",
    "aten::randn_like": "aten::normal_",
    "aten::randperm": "aten::randperm.generator_out",
    "aten::sort": "aten::sort.values_stable",
    "aten::stack": "aten::cat.out",
}
"""By operator, the one that it calls on a device without a kernel of its own for it."""


def has_kernel(op: Any, device: str) -> bool:
    """True if a device of this type has a kernel with which eager PyTorch runs the overload ``op`` there. Also True if
    nothing is registered for the device in this process, because then nothing is known about it.
    """
    try:
        key = torch._C._dispatch_key_for_device(device)
    except RuntimeError:  # PyTorch does not know this device type
        return True
    if not isinstance(op, torch._ops.OpOverload):
        return False
    return not _is_registered("aten::empty_strided", key) or _has_kernel(op, key)


@cache
def _has_kernel(op: torch._ops.OpOverload, key: str) -> bool:
    if op.is_view:
        return _is_registered("aten::as_strided", key)
    return any(_is_registered(name, key) for name in _kernels_of(op))


def _kernels_of(op: torch._ops.OpOverload) -> Iterator[str]:
    """The operators with whose kernel eager PyTorch can run ``op``: itself, its ``out=`` and in-place forms, and the
    operator that it calls.
    """
    yield op.name()
    if (called := _CALLS.get(op.name())) is not None:
        yield called
    if _is_registered(op.name(), "CompositeExplicitAutogradNonFunctional"):
        yield from _writing(op, op.overloadpacket)
    elif _is_registered(op.name(), "CompositeExplicitAutograd"):
        yield from _writing(op, op.overloadpacket)
        in_place = getattr(getattr(torch.ops, op.namespace), f"{op.overloadpacket.__name__}_", None)
        if in_place is not None:
            yield from _writing(op, in_place)


def _writing(op: torch._ops.OpOverload, packet: Any) -> Iterator[str]:
    """The overloads of ``packet`` that take the arguments of ``op``, write to some, and may take results to fill."""
    own = [a.name for a in op._schema.arguments]
    for name in packet.overloads():
        other = getattr(packet, name)
        read = [a.name for a in other._schema.arguments if not (a.is_write and a.kwarg_only)]
        if other._schema.is_mutable and read == own:
            yield other.name()


def _is_registered(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
