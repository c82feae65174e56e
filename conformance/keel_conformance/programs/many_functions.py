"""Contract programs of many functions in one graph, as graphs of whole models are: much that nothing connects, and what
compilers look for among it. The short tier takes these in place of a program for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from .context import Context
from .program import Chapter, Function, Program

MOST: Mapping[bool, int] = {True: 8, False: 4}
"""Functions of one graph, where they are exact and where they round: these are run again under each noise. A graph of
twenty has some two hundred kernels, which are more than some backends compile in the time that a case may take.
"""


def program(functions: Mapping[str, Function], dynamic: bool | None, ctx: Context) -> None:
    """All of the functions as one, whose results have their names."""

    def fn(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one.fn(*arguments[name]) for name, one in functions.items()}

    go = ctx.compile(fn, dynamic=dynamic)
    for call in ctx.rounds():
        ctx.run(go, {name: one.draw_arguments(ctx, call) for name, one in functions.items()})


def groups_of(chapters: Sequence[Chapter], functions: Mapping[str, Function]) -> Chapter:
    """The ``functions`` of the chapters, by their programs' names, as they are, and in other groups with sizes that the
    program does not know.
    """
    graphs = Chapter("graphs")
    made = [p for c in chapters for p in c.programs if p.name in functions]

    def group(name: str, some: Sequence[Program], dynamic: bool | None, **how: Any) -> None:
        of = {p.name.removeprefix("graphs-"): functions[p.name] for p in some}
        clauses = [c.removeprefix("contract.") for c in dict.fromkeys(c for p in some for c in p.clauses)]
        graphs(*clauses, *(["shapes.C1"] if dynamic else []), name=name, exact=some[0].exact, **how)(
            partial(program, of, dynamic)
        )

    for smoke, exact in product((True, False), repeat=2):
        members = [p for p in made if (p.smoke, p.exact) == (smoke, exact)]
        count = -(-len(members) // MOST[exact])
        kind = ("" if exact else "-rounded") + ("" if smoke else "-too")
        for k in range(count):
            group(f"together{kind}-{k + 1}", members[k::count], None, smoke=smoke)  # of each kind some
        half = MOST[exact] // 2  # which take longer to compile
        for k in range(0, len(members), half):
            group(f"of-any-size{kind}-{k // half + 1}", members[k : k + half], True, profile="dynamic")

    return graphs
