"""The domain of each member: its family's own, else the generic one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from keel.opset import MEMBERS, Op

from ..domain import Domain
from ..exclusions import exempt
from ..from_samples import generic
from ..invalid_calls import negatives_of
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
    **contraction.BUILD.found,
    **convolution.BUILD.found,
    **pooling.BUILD.found,
    **normalization.BUILD.found,
    **attention.BUILD.found,
    **losses.BUILD.found,
    **linalg.BUILD.found,
    **fft.BUILD.found,
    **resampling.BUILD.found,
    **quantize.BUILD.found,
    **quantization_params.BUILD.found,
    **embedding_bag.BUILD.found,
    **assertions.BUILD.found,
    **creation.BUILD.found,
    **random.BUILD.found,
}
"""Who gives the domain of a member that has its own."""
BUILDERS: tuple[Callable[[Op], Domain | None], ...] = (pointwise.build, reductions.build, indexing.build)
"""Each gives the domain of a member of its families, None for others."""


@cache
def domain_of(name: str) -> Domain | None:
    """The domain of a member; None for one that is exempt, that this PyTorch lacks, or that no call is known of."""
    op = MEMBERS[name]
    if exempt(op) is not None or not op.targets:
        return None
    builders = [*([OWN[name]] if name in OWN else []), *BUILDERS, generic]
    domain = next((d for build in builders if (d := build(op)) is not None), None)
    if domain is None:
        return None
    broken = {n.breaks for n in domain.negatives}
    return replace(domain, negatives=(*domain.negatives, *(n for n in negatives_of(op) if n.breaks not in broken)))
