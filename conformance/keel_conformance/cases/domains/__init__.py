"""The domain of each member: its family's own, else the generic one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from keel.opset import MEMBERS, Op

from ..anchors import anchors_of
from ..domain import Domain
from ..exclusions import why_excluded
from ..from_samples import domain_from_samples
from ..invalid_calls import invalid_calls_of
from . import (
    assertions,
    attention,
    contraction,
    convolution,
    creation,
    embedding_bag,
    fft,
    indexing,
    linalg,
    losses,
    normalization,
    pointwise,
    pooling,
    quantization_params,
    quantize,
    random,
    reductions,
    resampling,
)

OWN: Mapping[str, Callable[[Op], Domain]] = {
    **contraction.BUILD.declared,
    **convolution.BUILD.declared,
    **pooling.BUILD.declared,
    **normalization.BUILD.declared,
    **attention.BUILD.declared,
    **losses.BUILD.declared,
    **linalg.BUILD.declared,
    **fft.BUILD.declared,
    **resampling.BUILD.declared,
    **quantize.BUILD.declared,
    **quantization_params.BUILD.declared,
    **embedding_bag.BUILD.declared,
    **assertions.BUILD.declared,
    **creation.BUILD.declared,
    **random.BUILD.declared,
}
"""Builders of the domains of members that have their own."""
BUILDERS: tuple[Callable[[Op], Domain | None], ...] = (pointwise.build, reductions.build, indexing.build)
"""Each gives the domain of a member of its families, None for others."""


@cache
def domain_of(name: str) -> Domain | None:
    """The domain of a member, with its anchors; None for one that is exempt, that this PyTorch lacks, or that no call
    is known of.
    """
    domain = declared_domain(name)
    if domain is None:
        return None
    possible = (levels for levels in anchors_of(name) if levels.keys() == domain.factors.keys())
    return replace(domain, extra=(*domain.extra, *possible))


def declared_domain(name: str) -> Domain | None:
    """The same domain without the anchors."""
    op = MEMBERS[name]
    if why_excluded(op) is not None or not op.targets:
        return None
    builders = [*([OWN[name]] if name in OWN else []), *BUILDERS, domain_from_samples]
    domain = next((d for build in builders if (d := build(op)) is not None), None)
    if domain is None:
        return None
    broken = {n.violates for n in domain.invalid_calls}
    return replace(
        domain, invalid_calls=(*domain.invalid_calls, *(n for n in invalid_calls_of(op) if n.violates not in broken))
    )
