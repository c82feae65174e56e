"""What goes beyond one operator: the room of each kind of case, loaded when it is asked for.

A room has ``cases(tier, seed)``, which are the cases of a plan; ``run_case``, which runs one on a backend; and
``judge``, which says what came of it.  Processes that run operators load none.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .case import Kind

PACKAGES: Mapping[Kind, str] = {
    "program": "keel_conformance.programs",
    "graph": "keel_conformance.graphs",
    "kernel": "keel_conformance.kernels",
}


def package_of(kind: Kind) -> Any:
    """The package of the cases of a kind."""
    return import_module(PACKAGES[kind])
