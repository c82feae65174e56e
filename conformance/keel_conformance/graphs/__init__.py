"""Functional programs drawn at random, which trigger fusions and nearly miss them, each run on three sets of values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ..cases.case import Case
from ..devices import HOST
from ..programs.compare_facts import differences, disturbed_by, summarize, worst_of
from ..programs.monte_carlo import Noise
from ..programs.observation import Fact, Observation, layout, snapshot
from ..results.verdict import Verdict
from .graph_generator import draw
from .graph_ir import Input, Node, RandomGraph, module, pruned, random_inputs, run

__all__ = ["Input", "Node", "RandomGraph", "cases", "judge", "module", "program_of", "pruned", "run", "run_case"]

COUNTS: Mapping[str, int] = {"smoke": 20, "standard": 400, "full": 2500}
DTYPES = ("float32",) * 8 + ("float64", "bfloat16")
CLAUSE = "contract.graphs.C1"
CALLS, NOISE = 3, 8


def cases(tier: str = "standard", seed: int = 0) -> Iterator[Case]:
    """Two of three are exact, some of those in another dtype than float32."""
    for n in range(COUNTS[tier]):
        exact = n % 3 != 2
        dtype = DTYPES[n % len(DTYPES)] if exact else "float32"
        yield Case(
            "drawn-program",
            "graphs",
            "graph",
            "core",
            dtype=dtype,
            choice=(("number", str(n)), ("values", "exact" if exact else "rounded")),
            clauses=(CLAUSE,),
            seed=seed,
        )


def program_of(case: Case) -> RandomGraph:
    return draw(case.seed * 100_003 + int(case.levels["number"]), case.levels["values"] == "exact", case.dtype)


def run_case(case: Case, compile: Callable[..., Any], device: str = HOST) -> Observation:
    """Compiles the program and calls it three times with other values, on the device."""
    start, facts, error = time.perf_counter(), list[Fact](), ""
    program = program_of(case)
    torch.compiler.reset()
    try:
        go = compile(module(program))
        for call in range(CALLS):
            inputs = random_inputs(program, case.seed, call)
            results = go(*(x.to(device, copy=True) for x in inputs))
            for k, x in enumerate(results):
                retained = layout(x)
                facts += [
                    (
                        f"call{call}.result[{k}] type",
                        "contract.layouts.C4",
                        {name: retained[name] for name in ("dtype", "shape")},
                    ),
                    (f"call{call}.result[{k}] values", CLAUSE, snapshot(x).cpu()),
                    (f"call{call}.result[{k}] strides", "contract.layouts.C1", retained["strides"]),
                ]
    except Exception as raised:
        error = summarize(raised)
    return Observation(tuple(facts), error, getattr(compile, "parts", None), time.perf_counter() - start)


def judge(case: Case, observed: Observation, device: str = HOST) -> Verdict:
    """Compares with eager PyTorch, which runs here, on the device: bit for bit where the program is exact."""
    program = program_of(case)

    def verdict(status: Any, oracle: str, sentence: str = "", clause: str = "", **figures: Any) -> Verdict:
        return Verdict(case.id, status, oracle, sentence, clause, figures, observed.seconds)

    expected = run_case(case, lambda fn: fn, device)
    if expected.error:
        return verdict("harness error", "contract", f"Eager PyTorch cannot run it: {expected.error}")
    if observed.error:
        return verdict("fail", "contract", f"It raised {observed.error}", CLAUSE)
    if difference := differences(observed, expected, program.exact):
        name, clause, sentence = difference
        return verdict("fail", "exact" if "values" in name else "contract", f"{name}: {sentence}", clause)
    ratio = 0.0
    if not program.exact:
        ratio, clause, sentence, _ = worst_of(
            observed,
            expected,
            [
                _wide(program, case.seed),
                *disturbed_by(
                    lambda k: Noise(case.seed * NOISE + k, torch.finfo(torch.float32).eps / 2),
                    NOISE,
                    lambda: _wide(program, case.seed),
                ),
            ],
        )
        if ratio > 1:
            return verdict("fail", "composite", sentence, clause, ratio=ratio)
    if observed.parts == 0:
        return verdict("not claimed", "contract", "The backend took none of its operators.")
    return verdict("pass", "exact" if program.exact else "composite", ratio=ratio)


def _wide(program: RandomGraph, seed: int) -> Observation:
    facts: list[Fact] = []
    wide = RandomGraph(
        program.inputs,
        tuple(
            Node(n.op, n.args, tuple((k, "float64" if v == "float32" else v) for k, v in n.attrs))
            for n in program.nodes
        ),
        program.outputs,
        program.exact,
    )
    for call in range(CALLS):
        inputs = [x.double() if x.is_floating_point() else x for x in random_inputs(program, seed, call)]
        facts += [(f"call{call}.result[{k}] values", CLAUSE, snapshot(x)) for k, x in enumerate(run(wide, inputs))]
    return Observation(tuple(facts))
