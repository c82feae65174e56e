"""Contract programs of many functions in one graph, as graphs of whole models are: much that nothing connects, and what
compilers look for among it. The short tier takes these in place of a program for each.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

from .compositions import graphs
from .lab import Lab
from .program import Function

MOST: Mapping[bool, int] = {True: 8, False: 4}
"""Functions of one graph, where they are exact and where they round: these are run again under each noise. A graph of
twenty has some two hundred kernels, which are more than some backends compile in the time that a case may take.
"""


def program(functions: Mapping[str, Function], lab: Lab) -> None:
    """All of the functions as one, whose results have their names."""
    def fn(given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one.fn(*given[name]) for name, one in functions.items()}
    go = lab.compile(fn)
    for call in lab.each():
        lab.run(go, {name: one.drawn(lab, call) for name, one in functions.items()})


def _together() -> None:
    made = [p for p in graphs.programs if p.name in graphs.functions]
    for smoke, exact in product((True, False), repeat=2):
        mine = [p for p in made if (p.smoke, p.exact) == (smoke, exact)]
        count = -(-len(mine) // MOST[exact])
        kind = ("" if exact else "-rounded") + ("" if smoke else "-too")
        for k in range(count):
            some = mine[k::count]                             # of each kind some
            functions = {p.name.removeprefix("graphs-"): graphs.functions[p.name] for p in some}
            clauses = [c.removeprefix("contract.") for c in dict.fromkeys(c for p in some for c in p.clauses)]
            graphs(*clauses, name=f"together{kind}-{k + 1}", exact=exact, smoke=smoke)(partial(program, functions))


_together()
