"""Contract programs: small programs, written by hand, that each witness clauses of docs/conformance/contract.md.

``run_case`` runs one with a backend's compiler and tells what it saw; ``judge`` runs it in eager PyTorch and compares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from ..cases.case import Case
from ..devices import HOST
from ..results.verdict import Verdict
from . import (
    aliasing,
    assertions,
    attention_layers,
    autograd_context,
    caching,
    collectives,
    compare_facts,
    control_flow,
    dtypes,
    dynamic_shapes,
    epilogues,
    exceptions,
    gradients,
    indexed_access,
    layers,
    layouts,
    near_misses,
    op_chains,
    op_pairs,
    precision,
    python_values,
    randomness,
    recompilation,
    rewrites,
    states,
    training,
)
from .contract import CLAUSES
from .many_functions import groups_of
from .observation import Observation
from .program import Chapter, Function, Program
from .restricted_compiler import Compiler, plain

GRAPHS = (
    rewrites.graphs,
    epilogues.graphs,
    precision.graphs,
    caching.graphs,
    op_pairs.graphs,
    near_misses.graphs,
    attention_layers.graphs,
    layers.graphs,
    indexed_access.graphs,
    dtypes.graphs,
    op_chains.graphs,
    autograd_context.graphs,
)
FUNCTIONS: Mapping[str, Function] = {name: one for chapter in GRAPHS for name, one in chapter.functions.items()}
"""What stands in one graph with others, too, by the names of the programs in which it stands alone."""
TOGETHER = groups_of(GRAPHS, FUNCTIONS)
CHAPTERS: tuple[Chapter, ...] = (
    aliasing.mutation,
    precision.mutation,
    autograd_context.mutation,
    aliasing.views,
    aliasing.aliases,
    layouts.layouts,
    gradients.gradients,
    autograd_context.gradients,
    randomness.random,
    caching.random,
    autograd_context.random,
    python_values.buffers,
    python_values.scalars,
    caching.scalars,
    python_values.arguments,
    caching.arguments,
    python_values.calls,
    caching.calls,
    recompilation.shapes,
    dynamic_shapes.shapes,
    recompilation.dtypes,
    recompilation.several,
    training.whole_models,
    training.training,
    autograd_context.training,
    recompilation.modes,
    exceptions.errors,
    assertions.assertions,
    training.partition,
    *GRAPHS,
    TOGETHER,
    control_flow.control,
    collectives.collectives,
    states.states,
)
"""What each module has of each chapter, in the order of a plan: append, for a program's place decides how often it is
called.
"""
PROGRAMS: Mapping[str, Program] = {p.name: p for chapter in CHAPTERS for p in chapter.programs}
"""By name."""

__all__ = [
    "CHAPTERS",
    "CLAUSES",
    "PROGRAMS",
    "Chapter",
    "Compiler",
    "Observation",
    "Program",
    "cases",
    "judge",
    "plain",
    "run_case",
]


def cases(tier: str = "standard", seed: int = 0) -> Iterator[Case]:
    """Smoke: the most telling programs of each chapter, its functions many in one. Standard: all. Full: all, with three
    seeds.

    Every program is called three times, every tenth twelve times.
    """
    for k, program in enumerate(PROGRAMS.values()):
        if tier == "smoke" and (not program.smoke or program.name in FUNCTIONS):
            continue
        calls = 12 if k % 10 == 9 and tier != "smoke" else 3
        for more in range(3 if tier == "full" else 1):
            yield Case(
                program.name,
                program.chapter,
                "program",
                program.profile,
                choice=(("calls", f"calls{calls}"), ("values", "exact" if program.exact else "rounded")),
                clauses=program.clauses,
                seed=seed + 1000 * more,
            )


def run_case(case: Case, compile: Callable[..., Any], device: str = HOST) -> Observation:
    """Runs the case's program on the device with ``compile``: a ``Compiler``, or anything that is called like one."""
    start = time.perf_counter()
    ctx, error = None, ""
    try:
        ctx = compare_facts.run_program(PROGRAMS[case.op], compile, case.seed, calls_of(case), device)
    except Exception as raised:
        error = compare_facts.summarize(raised)
    facts = ctx.finish() if ctx else ()
    return Observation(facts, error, getattr(compile, "parts", None), time.perf_counter() - start)


def judge(case: Case, observed: Observation, device: str = HOST) -> Verdict:
    """Compares with eager PyTorch, which runs here, on the device. What needs a package that is not here is not run."""
    program = PROGRAMS[case.op]
    if program.needs and find_spec(program.needs) is None:
        return Verdict(case.id, "not run", "contract", f"It needs {program.needs}, which is not installed.")
    expected = run_case(case, plain, device)
    return compare_facts.judge(
        program,
        case.id,
        observed,
        expected,
        lambda: compare_facts.noisy_runs(program, case.seed, calls_of(case), plain),
        device,
    )


def calls_of(case: Case) -> int:
    return int(case.levels["calls"].removeprefix("calls"))
