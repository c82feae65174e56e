"""The judge's verdict on results that are as a test has them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles.judge import judge


def verdict(
    name: str,
    op: Any,
    args: Sequence[Any],
    results: Sequence[Any],
    notes: frozenset[str] = frozenset(),
    choice: Any = (),
    **kwargs: Any,
) -> Any:
    """``op`` is an overload or its name, ``choice`` the levels of the case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # releases differ in what they warn of
        return judge(Case(name, "", "op", "core", str(op), choice=choice), Inputs(tuple(args), kwargs, notes), results)
