"""Finds choices of a domain that witness what its cases at tier standard do not.

Choices that are tried: those that witness the class in another dtype, those with the levels of its hints, and others of
the plan. What PyTorch refuses, and what the oracles do not pass with PyTorch's own results, is left out.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from keel.opset import MEMBERS

from ..cases.anchors import FILE
from ..cases.case import Case
from ..cases.domain import Domain, Levels
from ..cases.domains import declared_domain
from ..cases.plan import case_of, cases_of
from ..oracles.judge import judge
from .generic_mutants import CLASSES, Execution
from .witness_table import Cell, Key, cells_of, execution, is_judged, missing_of, shown_by

BASES = 6
"""Choices whose levels are replaced by those of hints."""
TRIALS = 96
"""Choices of a dtype that are tried, at most."""


def find_anchors(domain: Domain, cells: dict[Key, Cell], cases: Sequence[Case], seed: int) -> list[Levels]:
    """Choices that witness cells without a witness; ``cells`` is brought up to date."""
    levels_by_case: dict[str, Levels] = {c.id: {**c.levels, "dtype": c.dtype} for c in cases if c.kind == "op"}
    results = list[Levels]()
    for dtype in domain.factors["dtype"]:
        for levels in islice(_candidates(domain, dtype, cells, levels_by_case, seed), TRIALS):
            missing = missing_of(cells, dtype)
            if not missing:
                break
            case = case_of(domain, levels, seed)
            call = execution(domain.op, case)
            if call is None:
                continue
            shown = shown_by(case, call, missing)
            if any(c.witness for c in shown.values()) and _passes(case, call):
                levels_by_case[case.id] = levels
                results.append(levels)
            else:
                shown = {k: c for k, c in shown.items() if not c.witness}
            cells |= shown
    return results


def _passes(case: Case, call: Execution) -> bool:
    """Whether PyTorch's own results pass."""
    return judge(case, call.inputs, call.right).status in ("pass", "quality warning")


def _candidates(
    domain: Domain, dtype: str, cells: Mapping[Key, Cell], cases: Mapping[str, Levels], seed: int
) -> Iterator[Levels]:
    """Choices of a dtype that may witness what is missing there, the most likely ones first, none twice."""
    missing = [name for (of, name), c in cells.items() if of == dtype and not c.witness]
    elsewhere = [cases[c.witness] for (_, name), c in cells.items() if name in missing and c.witness]
    others = [*cases.values()]
    random.Random(f"{domain.op.name} {dtype} {seed}").shuffle(others)
    bases = [levels for levels in others if levels["dtype"] == dtype][:BASES]
    hinted = [{**levels, **hint} for name in missing for hint in CLASSES[name].hints for levels in bases]
    visited = set[tuple[str, ...]]()
    for levels in (*elsewhere, *hinted, *others):
        choice = {f: levels[f] for f in domain.factors} | {"dtype": dtype}
        if _is_allowed(domain, choice) and (key := tuple(choice.values())) not in visited:
            visited.add(key)
            yield choice


def _is_allowed(domain: Domain, choice: Levels) -> bool:
    try:
        return domain.allows(choice)
    except (KeyError, ValueError):  # a size that the domain does not know
        return False


def anchors_for(name: str, seed: int = 0) -> list[Levels]:
    """Those of a member."""
    domain = declared_domain(name)
    if domain is None or not is_judged(domain.op):
        return []
    cases = list(cases_of(domain, "standard", seed))
    return find_anchors(domain, cells_of(domain.op, cases, domain.factors["dtype"]), cases, seed)


def write_anchors(names: Sequence[str]) -> None:
    """Brings ``FILE`` up to date for these members; removes those that there are no more."""
    anchors = json.loads(FILE.read_text()) if FILE.is_file() else {}
    anchors |= {name: anchors_for(name) for name in names}
    rows = [f"{json.dumps(name)}: {json.dumps(anchors[name])}" for name in MEMBERS if anchors.get(name)]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    write_anchors(sys.argv[1:] or list(MEMBERS))
