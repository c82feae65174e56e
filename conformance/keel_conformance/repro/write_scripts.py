"""Writes a script for each failure of a run, the first of each kind made as small as time allows, and tries them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from keel.minify import Deadline
from keel.testing import claims_of

from ..cases.case import Case, Kind
from ..cases.inputs import draw_inputs
from ..harness.backend_under_test import GROUP
from ..harness.protocol import DRAWS
from ..results.verdict import Status, Verdict
from . import minimize, script
from .kernel import of_kernel
from .reduce_graph import of_graph
from .reduce_program import of_program
from .replay import FailingCalls, ReplayPool, reason
from .written_script import FOLDER, Written, name_of

FAILURES: frozenset[Status] = frozenset({"fail", "crash", "timeout", "resource", "flaky"})


def write(
    folder: Path,
    subject: str,
    cases: Sequence[Case],
    verdicts: Sequence[Verdict],
    *,
    seconds: float = 600.0,
    each: float = 60.0,
    report_case: Callable[[str], None] = lambda text: None,
) -> list[Written]:
    """A script below ``folder``/repro for each failure.

    Each is made smaller: the first of an operator that fail alike within ``each`` seconds, the others within a
    fifteenth of that. After ``seconds`` nothing more is made smaller or tried, but all is written.
    """
    by_id = {c.id: c for c in cases}
    failed = [v for v in verdicts if v.status in FAILURES and v.case in by_id]
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    visited: set[tuple[str, ...]] = set()
    result, total = [], Deadline(seconds)
    with ReplayPool() as bench, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench.value(len, ())  # its process starts outside of anybody's time
        for v in sorted(failed, key=lambda v: alike(v) in visited):
            case = by_id[v.case]
            first = alike(v) not in visited
            visited.add(alike(v))
            report_case(v.case)
            deadline = Deadline(min(each if first else each / 15, total.end - Deadline(0).end))
            try:
                result.append(_one(folder, subject, case, v, bench, deadline, trying=not total.over))
            except Exception as e:  # one case without a script must not stop the others
                result.append(Written(case.id, lacking=f"{type(e).__name__}: {str(e)[:300]}"))
    return result


def paths(written: Sequence[Written]) -> Mapping[str, str]:
    """Maps each case to the path of its script."""
    return {w.case: w.path for w in written if w.path}


def alike(v: Verdict) -> tuple[str, ...]:
    return v.case.partition("/")[0], v.status, v.oracle, v.clause


def _one(
    folder: Path, subject: str, case: Case, v: Verdict, bench: ReplayPool, deadline: Deadline, *, trying: bool
) -> Written:
    return WRITERS[case.kind](folder, subject, case, v, bench, deadline, trying=trying)


def _of_kernel(
    folder: Path, subject: str, case: Case, v: Verdict, bench: ReplayPool, deadline: Deadline, *, trying: bool
) -> Written:
    path = folder / name_of(case)
    path.write_text(of_kernel((case, subject, v), bench, trying=trying), encoding="utf-8")
    return Written(case.id, name_of(case), trying and bench.status(str(path)) == 1)


# -- calls of operators ------------------------------------------------------------------------------------------------


def of_call(
    folder: Path, subject: str, case: Case, v: Verdict, bench: ReplayPool, deadline: Deadline, *, trying: bool = True
) -> Written:
    """The script of a failing call; that of the calls before it, too, where it fails only after them."""
    inputs = [draw_inputs(case, k) for k in range(1 if case.kind == "negative" else max(DRAWS) + 1)]
    later = v.call
    draws = {(0,), (later if later < len(inputs) else 0,)}
    starts = [
        FailingCalls(subject, case, tuple(inputs[d] for d in one))
        for one in (*sorted(draws, key=lambda d: d != (later,)), *((DRAWS[:2], DRAWS) if inputs[1:] else ()))
    ]
    if v.oracle == "repeat" or v.figures.get("fault") == "result changed":
        starts = starts[::-1]
    calls, verdict = starts[0], v
    if trying:
        for calls in starts:
            verdict = bench.verdict(calls)
            if _alike(verdict, v):
                break
        else:
            calls, verdict = starts[0], v
    smaller = False
    if trying and deadline.seconds > 0 and _alike(verdict, v) and case.kind == "op":
        failure = reason(verdict)
        least = minimize.of_calls(
            calls, verdict.figures.get("index"), lambda c: reason(bench.verdict(c)) == failure, deadline
        )
        smaller = minimize.size_of(least) < minimize.size_of(calls) or len(least.inputs) < len(calls.inputs)
        if smaller or least is not calls:
            calls, verdict = least, replace(bench.verdict(least), clause=v.clause)
    verdict = replace(verdict, clause=v.clause or verdict.clause) if verdict.status == v.status else v
    path = folder / name_of(case)
    for plain in (True, False) if _registered(subject) and case.kind == "op" else (False,):
        path.write_text(script.of_calls(calls, verdict, plain=plain), encoding="utf-8")
        shown = trying and bench.status(str(path)) == 1
        if shown:
            break
    return Written(case.id, name_of(case), shown, smaller)


def _alike(verdict: Verdict, v: Verdict) -> bool:
    return verdict.status == v.status or (v.status == "flaky" and verdict.status in FAILURES)


def _registered(subject: str) -> bool:
    """Whether it is a backend of ``torch.compile``, which a script reaches without Keel."""
    own = [p for p in claims_of(GROUP).get(subject, ()) if p.module != "keel_foreign"]
    return not own and subject in torch.compiler.list_backends(exclude_tags=())


WRITERS: Mapping[Kind, Callable[..., Written]] = {
    "op": of_call,
    "negative": of_call,
    "graph": of_graph,
    "program": of_program,
    "kernel": _of_kernel,
}
"""What writes the script of a case of each kind."""
