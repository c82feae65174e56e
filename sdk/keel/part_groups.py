"""Parts that are alike, such as those of repeated layers, together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from keel.reports import PartReport

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True)
class PartGroup:
    """Parts of one backend with the same operators in the same modules, but for numbers of layers. ``module`` has a
    ``*`` in the place of a number that differs.
    """

    parts: tuple[PartReport, ...]
    module: str

    @property
    def name(self) -> str:
        """``p2``, or ``p2 (4x)``."""
        return self.parts[0].name + (f" ({len(self.parts)}x)" if len(self.parts) > 1 else "")

    @property
    def first(self) -> PartReport:
        return self.parts[0]

    @property
    def calls(self) -> int:
        return sum(part.calls for part in self.parts)

    @property
    def seconds(self) -> tuple[float, float, float] | None:
        """The predicted seconds of the calls, the transfers and the launches of all parts."""
        known = [(p.work, p.moves, p.launch) for p in self.parts]
        if any(None in one for one in known):
            return None
        work, moves, launch = (sum(one[k] or 0.0 for one in known) for k in range(3))
        return work, moves, launch


def grouped(parts: Sequence[PartReport]) -> tuple[PartGroup, ...]:
    """The groups of parts, in the order of their first parts."""
    alike: dict[object, list[PartReport]] = {}
    for part in parts:
        operators = frozenset(part.operators.items())
        key = part.owner, part.claimed_by, operators, _NUMBER.sub("*", part.module)
        alike.setdefault(key, []).append(part)
    return tuple(PartGroup(tuple(same), common_pattern([p.module for p in same])) for same in alike.values())


def common_pattern(paths: Sequence[str]) -> str:
    """The paths, which differ in numbers only, as one: ``layer.*.attention``."""
    names = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(same[0] if len({*same}) == 1 else "*" for same in names)
