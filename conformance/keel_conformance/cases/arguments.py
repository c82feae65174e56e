"""A case's arguments: equal bits in every process, other values in other memory at every call."""
from __future__ import annotations

from keel_conformance.cases.case import Case, Trial
from keel_conformance.cases.domain import DTYPES
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.values import Draw

BREAKS = "breaks"
"""The factor of a negative case that names what it breaks."""


def arguments(case: Case, call: int) -> Trial:
    """Those of the call number ``call`` (0, 1, 2 ...) of a case of the kinds ``op`` and ``negative``; types and
    attributes are the same in all.  Raises ValueError for a case that its domain does not have.
    """
    domain, draw = domain_of(case.op), Draw(case.digest, call)
    made: Trial | None = None
    match case.kind:
        case "op" if domain is not None and domain.allows(case.levels):
            made = domain.make({**case.levels, "dtype": case.dtype}, DTYPES[case.dtype], draw)
        case "negative" if domain is not None:
            made = next((n.make(draw) for n in domain.negatives if n.name == case.levels[BREAKS]), None)
    if made is None:
        raise ValueError(f"No domain has the case {case.id}.")
    return made
