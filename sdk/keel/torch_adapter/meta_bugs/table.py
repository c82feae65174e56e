"""All known bugs of PyTorch's meta kernels, by operator, and the fixes that need nothing but the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from keel.torch_adapter.meta_bugs.fft_strides import FFT_STRIDES
from keel.torch_adapter.meta_bugs.missing import MISSING
from keel.torch_adapter.meta_bugs.record import Kind, MetaBug, NamedArguments, Size, with_dtype
from keel.torch_adapter.meta_bugs.result_dtypes import DTYPES
from keel.torch_adapter.meta_bugs.result_metadata import RESULTS
from keel.torch_adapter.meta_bugs.strides import STRIDES
from keel.torch_adapter.sympy_expressions import expression

META_BUGS: tuple[MetaBug, ...] = (*FFT_STRIDES, *STRIDES, *DTYPES, *RESULTS, *MISSING)


def _by_operator(*kinds: Kind) -> Mapping[Any, tuple[MetaBug, ...]]:
    table: dict[Any, tuple[MetaBug, ...]] = {}
    for bug in META_BUGS:
        for op in bug.ops if bug.kind in kinds else ():
            table[op] = (*table.get(op, ()), bug)
    return MappingProxyType(table)


_STRIDES, _ABSENT = _by_operator("strides"), _by_operator("absent")
_DTYPES, _RESULTS = _by_operator("dtype"), _by_operator("results")
_WRONG = frozenset(_by_operator("absent", "dtype", "results"))
METAS: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {
        op: bug.fix
        for op, (bug,) in _by_operator("missing", "instead").items()
        if bug.kind == "instead" or not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.Meta)
    }
)
"""By operator: what to ask instead of its meta kernel."""


def bug_of(op: Callable[..., Any]) -> MetaBug | None:
    """The bug about the strides of an operator's results."""
    return next(iter(_STRIDES.get(op if getattr(op, "namespace", "aten") in ("aten", "prims") else str(op), ())), None)


def has_bug(op: Callable[..., Any]) -> bool:
    """Whether a promise about an operator's results is wrong for some calls."""
    return op in _WRONG or bug_of(op) is not None


def fix_results(op: Any, args: Sequence[Any], kwargs: NamedArguments, value: Any) -> Any:
    """``said``, the promised result of a call, as eager gives it.  Runs under the fake mode of ``said``."""
    for bug in _DTYPES.get(op, ()):
        if not isinstance(value, tuple | list):
            value = _with_dtype(bug, args, value)
        else:
            about = bug.results or ()
            value = tuple(_with_dtype(bug, args, v) if i in about else v for i, v in enumerate(value))
    for bug in _RESULTS.get(op, ()):
        value = bug.fix(value, args)
    return fix_strides(op, args, kwargs, value)


def _with_dtype(bug: MetaBug, args: Sequence[Any], value: Any) -> Any:
    return value if bug.device not in (None, args[0].device.type) else with_dtype(value, bug.fix(args))


def fix_strides(op: Any, args: Sequence[Any], kwargs: NamedArguments, value: Any) -> Any:
    """``said``, the promised result of a call, with eager's strides, and without the results that eager leaves out.
    Runs under the fake mode of ``said``.
    """
    bug, absent = bug_of(op), _ABSENT.get(op, ())
    if bug is None and not absent:
        return value
    named = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | dict(kwargs)
    if not isinstance(value, tuple | list):
        return _restrided(bug, named, value)
    none = {k for each in absent for k in each.fix(named)}
    about = bug.results if bug is not None and bug.results is not None else range(len(value))
    return type(value)(
        [None if k in none else _restrided(bug, named, v) if k in about else v for k, v in enumerate(value)]
    )


def _restrided(bug: MetaBug | None, named: NamedArguments, value: Any) -> Any:
    if bug is None or not isinstance(value, torch.Tensor) or bug.device not in (None, value.device.type):
        return value
    strides = bug.fix(named, value)
    if strides is None or _same(value, strides):
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)


def _same(value: torch.Tensor, strides: Sequence[Size]) -> bool:
    """Whether strides that matter are equal: not those of sizes 0 and 1, nor any of an empty tensor."""
    sizes = [expression(n) for n in value.shape]
    return 0 in sizes or all(
        n == 1 or expression(s) == expression(t) for n, s, t in zip(sizes, value.stride(), strides, strict=True)
    )
