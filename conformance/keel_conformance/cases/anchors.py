"""Anchors: choices that tier standard must have, because they witness a class that the other cases of an operator miss.

They are stored in ``FILE``. ``python -m keel_conformance.witnesses.find_anchors`` writes it
again, for all members or for those that it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .domain import Levels

FILE = Path(__file__).with_name("anchors.json")


def anchors_of(name: str) -> tuple[Levels, ...]:
    """Those of a member."""
    return _stored().get(name, ())


@cache
def _stored() -> Mapping[str, tuple[Levels, ...]]:
    if not FILE.is_file():
        return {}
    return {name: tuple(some) for name, some in json.loads(FILE.read_text()).items()}
