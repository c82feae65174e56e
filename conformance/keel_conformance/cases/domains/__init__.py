"""The domain of each member: its family's own, else the generic one."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from keel.opset import MEMBERS, Op
from keel_conformance.cases.domain import Domain
from keel_conformance.cases.domains import (
    attention,
    axis,
    bags,
    checks,
    contraction,
    convolution,
    creation,
    fft,
    linalg,
    losses,
    normalisation,
    places,
    pointwise,
    pooling,
    quantization_choices,
    quantized,
    random,
    resampling,
)
from keel_conformance.cases.exempt import exempt
from keel_conformance.cases.generic import generic
from keel_conformance.cases.negatives import negatives_of

TABLES: tuple[Mapping[str, Callable[[Op], Domain]], ...] = (
    contraction.BUILD, convolution.BUILD, pooling.BUILD, normalisation.BUILD, attention.BUILD, losses.BUILD,
    linalg.BUILD, fft.BUILD, resampling.BUILD, quantized.BUILD, quantization_choices.BUILD, bags.BUILD, checks.BUILD,
    creation.BUILD)
"""Who gives the domain of a member, by its name."""
BUILDERS: tuple[Callable[[Op], Domain | None], ...] = (random.build, pointwise.build, axis.build, places.build)
"""Each gives the domain of a member of its families, None for others."""


@cache
def domain_of(name: str) -> Domain | None:
    """The domain of a member; None for one that is exempt, that this PyTorch lacks, or that no call is known of."""
    op = MEMBERS[name]
    if exempt(op) is not None or not op.targets:
        return None
    builders = [*(table[name] for table in TABLES if name in table), *BUILDERS, generic]
    domain = next((d for build in builders if (d := build(op)) is not None), None)
    if domain is None:
        return None
    broken = {n.breaks for n in domain.negatives}
    return replace(domain, negatives=(*domain.negatives, *(n for n in negatives_of(op) if n.breaks not in broken)))
