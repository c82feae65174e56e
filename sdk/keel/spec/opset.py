"""The operator set: every member, by name and by overload, and what an operator is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from keel import torch_adapter
from keel.spec.op import Family, Op
from keel.spec.ops import (
    activations,
    attention,
    attention_varlen,
    batch_norm,
    batch_norm_parts,
    collectives,
    complex_numbers,
    contraction,
    contraction_quantized,
    control,
    conversion,
    convolution,
    creation,
    creation_composites,
    distances,
    distributions,
    dynamic,
    elementwise_binary,
    elementwise_composites,
    elementwise_ternary,
    elementwise_unary,
    fft,
    foreach,
    histograms,
    indexing,
    indexing_composites,
    jagged,
    linalg,
    linalg_composites,
    linalg_norms,
    losses,
    losses_linear,
    losses_margin,
    normalization,
    opaque,
    ordering,
    other_forms,
    parts,
    pooling,
    quantization_choices,
    random,
    reduction,
    resampling,
    sampling,
    scan,
    segments,
    shape,
    softmax,
    special,
    statistics,
    structure_composites,
    transformer,
    views,
    windows,
)
from keel.types import operator_name

FAMILIES: tuple[Family, ...] = (
    elementwise_unary.family,
    elementwise_binary.family,
    statistics.family,
    normalization.family,
    batch_norm.family,
    losses.family,
    attention.family,
    contraction.family,
    contraction_quantized.family,
    indexing.family,
    indexing_composites.family,
    parts.family,
    random.family,
    distributions.family,
    fft.family,
    linalg.family,
    linalg_composites.family,
    linalg_norms.family,
    collectives.family,
    control.family,
    opaque.family,
    reduction.family,
    scan.family,
    views.family,
    shape.family,
    ordering.family,
    dynamic.family,
    elementwise_ternary.family,
    complex_numbers.family,
    creation.family,
    creation_composites.family,
    special.family,
    elementwise_composites.family,
    conversion.family,
    conversion.quantized,
    activations.family,
    contraction_quantized.quantized,
    convolution.family,
    pooling.family,
    resampling.family,
    sampling.family,
    attention_varlen.family,
    softmax.family,
    losses_linear.family,
    losses_margin.family,
    structure_composites.family,
    histograms.family,
    segments.family,
    distances.family,
    foreach.family,
    other_forms.family,
    windows.family,
    jagged.family,
    transformer.family,
    batch_norm_parts.family,
    quantization_choices.family,
)


def _by_name() -> dict[str, Op]:
    members: dict[str, Op] = {}
    for family in FAMILIES:
        for name, op in family.members.items():
            if name in members:
                raise ValueError(f"{name} is declared in {members[name].family} and in {op.family}.")
            members[name] = op
    return members


def _by_overload() -> dict[str, Op]:
    members: dict[str, Op] = {}
    for op in MEMBERS.values():
        for name in op.overloads:
            if name in members:
                raise ValueError(f"{name} belongs to {members[name].name} and to {op.name}.")
            members[name] = op
    return members


class _Opset(Mapping[Callable[..., Any], Op]):
    """Looked up by name: an operator may be registered long after this is imported."""

    def __init__(self, members: Mapping[str, Op]):
        self.members = members

    def __getitem__(self, op: Callable[..., Any]) -> Op:
        return self.members[operator_name(op)]

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return (target for op in MEMBERS.values() for target in op.targets)

    def __len__(self) -> int:
        return sum(1 for _ in self)


MEMBERS: Mapping[str, Op] = MappingProxyType(_by_name())
"""Every member by its name."""

OPSET: Mapping[Callable[..., Any], Op] = _Opset(_by_overload())
"""The member that each overload of this PyTorch belongs to."""


def decomposition_of(op: Callable[..., Any]) -> Callable[..., Any] | None:
    """What an operator is made of: a composite's own decomposition; PyTorch's for a composite without its own and
    for operators that are not members; None for a primitive and for what is not decomposed.
    """
    member = OPSET.get(op)
    if member is None:
        return torch_adapter.decomposition_of(op)
    decomposition = member.forms.get(str(op), member.decompose)
    return torch_adapter.decomposition_of(op) if decomposition is None and member.kind == "composite" else decomposition
