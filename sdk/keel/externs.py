"""PyTorch's own kernels as externs, for loop targets on a device that PyTorch supports.

They cover contraction, convolution, attention, sorting, scatters with collisions and random numbers. An ATen out kernel
is used if it writes directly into its output (and does not compute and copy), so that results go straight into planned
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from keel.extern_limits import Limit, corrected, limit_of
from keel.loops.lower import AFTER_LIBRARIES, RULES, lower
from keel.plugin import Extern, LayoutPreference, PackedForm, Refusal
from keel.spec import MEMBERS, OPSET, Op, normal_form
from keel.spec.op import names
from keel.spec.pytorch_kernels import ALIGNED_ROWS, Library
from keel.torch_adapter import (
    has_kernel,
    may_alias,
    pack_convolution,
    pack_linear,
    packed_convolution,
    packed_linear,
    packs_dtype,
    packs_linear_dtype,
    packs_linear_for_speed,
)
from keel.types import DTYPE_NAMES, Call, TensorType

aten = torch.ops.aten

_INSTEAD: Mapping[str, Callable[..., Any]] = {"aten._conj.default": aten._conj_physical.default}
"""The overloads to call instead of those that only set a lazy bit."""

_OUTSIDE: Mapping[str, tuple[str, ...]] = {
    "cuda": ("aten._efficient_attention_forward.default", "aten._efficient_attention_backward.default")
}
"""Overloads outside the operator set that are externs too, by device type."""
_RUNTIME = frozenset({"control", "collective", "host", "effect"})
"""Tags of primitives that cannot be externs: they do not compute a tensor from tensors on one device."""
_NO_LOOPS: Mapping[str, str] = {
    "control": "It runs graphs or other functions.",
    "collective": "It communicates with other processes.",
    "host": "It tests a condition, or reads a number, on the host.",
    "random": "It draws random numbers as PyTorch does.",
    "sort": "It sorts.",
    "scan": "Its scan combines elements as no monoid of loops does.",
    "fft": "It computes with complex numbers.",
    "linalg": "It factorizes or solves, in steps that depend on each other.",
    "complex": "It computes with complex numbers, or reads their parts.",
    "special functions": "No scalar operation computes it.",
    "pointwise": "No scalar operation computes it.",
    "quantized": "Its numbers have scales, or are packed as a library wants them.",
}
"""Why primitives have no loop form: by tag, profile or family, whichever comes first here."""


def aten_externs(device: str, dtypes: Collection[torch.dtype] = tuple(DTYPE_NAMES)) -> Mapping[str, Extern]:
    """PyTorch's kernels for a device type (``cpu``, ``cuda``), by overload name, as ``LoopTarget.externs`` takes them.

    Operators for which the device has no kernel are left out, since eager PyTorch would run them on the host or raise.
    So a plugin for a vendor's device calls this after the device's kernels are registered.

    Results, including random ones, are bitwise equal to eager's, with two exceptions: float16 on CUDA if its kernels
    keep partial sums in float16, and images and matrices that Keel passes in the layout, with the pads, or packed, as a
    kernel prefers. Calls that these kernels cannot run, or for which they disagree with the operator set, are refused
    with the reason. On a CPU every primitive of the operator set is covered. A primitive that has a lowering on
    ``dtypes``, the dtypes of the target, is lowered to loops, unless an extern is better.
    """
    has_loops = partial(_has_loops, dtypes=frozenset(dtypes))
    outside = (run for name in _OUTSIDE.get(device, ()) if (run := _overload(name)) is not None and _runs(run, device))
    return {
        str(run): extern
        for op in MEMBERS.values()
        if _may_be_extern(op, device)
        for run in op.targets
        if _runs(_INSTEAD.get(str(run), run), device) and (extern := _extern(op, run, device, has_loops)) is not None
    } | {str(run): Extern(run=run) for run in outside}


def why_without_loops(op: Op) -> str | None:
    """Why a primitive has no loop form, as a sentence; None if it has one. A composite is decomposed instead."""
    if op.kind != "primitive" or any(run in RULES for run in op.targets):
        return None
    names = {*op.tags, op.profile, op.family}
    known = (sentence for name, sentence in _NO_LOOPS.items() if name in names)
    return op.no_loops or next(known, "It has no lowering rule.")


def advice(call: Call) -> str:
    """Why loops cannot compute ``call``, and that an extern could: sentences with a space before them. They are "" for
    a call that is rewritten, as it may have loops then.
    """
    op = OPSET.get(call.op)
    if op is None or op.kind != "primitive":
        return ""
    why = why_without_loops(op)
    if why is None and normal_form(call) is not None:
        return ""
    add = "" if op.tags & _RUNTIME else f"Add an extern for {call.name}."
    return "".join(f" {sentence}" for sentence in (why, add) if sentence)


def _may_be_extern(op: Op, device: str) -> bool:
    """False if no overload of a member is an extern. To look up these overloads would import the modules that register
    them.
    """
    has_library = any(library.device in (None, device) for library in op.libraries)
    return has_library or op.blas or _is_kernel(op) or not _INSTEAD.keys().isdisjoint(op.overloads)


def _extern(op: Op, run: Any, device: str, has_loops: Limit) -> Extern | None:
    """PyTorch's kernel of an overload; None if it is not used on the device."""
    name = str(run)
    library = next((x for x in op.libraries if _has(x, op, name, device)), None)
    if op.blas and name.endswith(".default"):
        fills = _overload(f"{name.removesuffix('.default')}.out")
        out = fills if _runs(fills, device) else None
        extern = Extern(run=run, out=out, aligned_rows=ALIGNED_ROWS.get(device, 1), packed=_packed(library))
    elif name in _INSTEAD:
        return Extern(run=_INSTEAD[name])
    elif library is not None and library.before_loops:
        view, layout, packed = bool(may_alias(run)), _layout(library), _packed(library)
        extern = Extern(run=run, view=view, layout=layout, bias=library.bias, packed=packed)
    elif library is not None or (device == "cpu" and _is_kernel(op)):
        extern = Extern(run=run, refuse=has_loops, view=bool(may_alias(run)))
    else:
        return None
    limit, right = limit_of(op, device), corrected(op, device, run)
    if limit is None and right is run:
        return extern
    return replace(extern, run=right, refuse=extern.refuse if limit is None else limit)


def _runs(op: Any, device: str) -> bool:
    """True if the device has a kernel for an overload. PyTorch defines each operator by its kernel for CPUs."""
    return device == "cpu" or has_kernel(op, device)


def _layout(library: Library) -> LayoutPreference | None:
    images = library.channels_last
    if images is None:
        return None
    # Each row-major image is converted: one more read and write before and after the kernel.
    return LayoutPreference(
        arguments=images.arguments, results=images.results, passes=2, converted=images.weights, dtypes=images.dtypes
    )


def _packed(library: Library | None) -> PackedForm | None:
    if library is None or library.packed is None:
        return None
    if library.packed.kind == "linear":
        return PackedForm(
            facts=library.packed,
            takes=packs_linear_dtype,
            takes_for_speed=packs_linear_for_speed,
            pack=pack_linear,
            run=packed_linear,
        )
    return PackedForm(facts=library.packed, takes=packs_dtype, pack=pack_convolution, run=packed_convolution)


def _has(library: Library, op: Op, overload: str, device: str) -> bool:
    return library.device in (None, device) and overload in (names(library.overloads) or op.overloads)


def _is_kernel(op: Op) -> bool:
    return op.kind == "primitive" and not op.tags & _RUNTIME


def _overload(name: str) -> Any:
    """The overload of that name; None if this PyTorch has none."""
    space, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), packet, None), overload, None)


def _has_loops(call: Call, dtypes: frozenset[torch.dtype]) -> Refusal | None:
    if call.op in AFTER_LIBRARIES:
        return None
    types = (*call.tensors, *(t for t in call.out if isinstance(t, TensorType)))
    if any(t.dtype not in dtypes for t in types) or isinstance(lower(call), str):
        return None
    return Refusal(f"{call.name} is lowered to loops here so that it can fuse; the extern is not used.")
