"""Elements of a result that may be anything, by the declaration of its member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from keel.opset import Op


def unspecified_elements(member: Op, named: Mapping[str, Any], results: Sequence[Any]) -> Sequence[Tensor | None]:
    """For each result of a member the elements that may be anything; None where none may."""
    return [None] * len(results) if member.unspecified is None else member.unspecified(named, results)
