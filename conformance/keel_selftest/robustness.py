"""Figures on how the suite conducts itself: what it outlives, repeats, and costs, and how soon there is a report."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from keel_conformance.cases.case import Case
from keel_conformance.cases.plan import plan
from keel_conformance.harness.journal import FILE, read
from keel_conformance.harness.protocol import Settings
from keel_conformance.harness.run import run
from keel_conformance.report import Criterion, join_names, percent

from .crashes import CRASHES

KILLS = 20
MEMBERS_KILLED = ("add", "sub", "mul", "neg", "abs", "exp", "sum", "amax")
"""The members whose cases make up the run that is killed."""
SUBJECT = "keel_selftest.mutants.pointwise:mul_without_tail.backend"
"""A backend of which some cases fail, so that the same verdicts are not just passes."""
PATIENCE = 600.0
DYING = ("neg", "mul", "sum")
FEW, REST = 2, 10
"""Cases of a member that die, and those that must not."""
LINES = 30
MINUTES = 10.0
COST = 5.0
"""Milliseconds."""


def overhead_bars(cases: Sequence[Case], out: Path, jobs: int) -> list[Criterion]:
    """On eager PyTorch, of cases of operators."""
    ran = run([c for c in cases if c.kind == "op"], "eager", out=out, jobs=jobs)
    cost = None if ran.overhead is None else 1e3 * ran.overhead
    return [
        Criterion(
            "what the harness takes of a case, in ms",
            cost,
            f"at most {COST:.0f}",
            cost is not None and cost <= COST,
            f"{len(ran.verdicts)} cases in {ran.seconds:.0f} s; CPU time beside "
            "the backend's, the oracles' and that of drawing arguments",
        )
    ]


def isolation_bars(out: Path) -> list[Criterion]:
    """Each way to die, in some of a member's cases; the others are to get what they get of eager PyTorch."""
    cases = [c for name in DYING for c in some_of(name)]
    right = {v.case: v.status for v in run(cases, "eager", out=out / "well").verdicts}
    contained, lost = list[str](), list[str]()
    for name, death in CRASHES.items():
        subject = f"keel_selftest.crashes:{name}.backend"
        ran = run(cases, subject, out=out / name, settings=Settings(subject, memory=2**30, limit=5.0, slack=0.5))
        have = {v.case: v.status for v in ran.verdicts}
        named_right = all(have.get(c.id) in death.verdicts for c in cases if c.dtype == "f64")
        others = [c.id for c in cases if c.dtype != "f64" and have.get(c.id) != right[c.id]]
        contained += [name] * named_right
        lost += others
    wrong = [name for name in CRASHES if name not in contained]
    return [
        Criterion(
            "ways to die that cost the case that dies, and name it",
            f"{len(contained)} of {len(CRASHES)}",
            "6 of 6",
            not wrong,
            f"not: {join_names(wrong)}" if wrong else f"{len(cases)} cases each",
        ),
        Criterion("verdicts that another case's death changes", len(lost), "0", not lost, join_names(lost)),
    ]


def some_of(name: str) -> list[Case]:
    cases = [c for c in plan(profile="strict", tier="standard", ops=[name]) if c.kind == "op"]
    return [*[c for c in cases if c.dtype == "f64"][:FEW], *[c for c in cases if c.dtype in ("f32", "i32")][:REST]]


def resume_bars(out: Path, standard: int) -> list[Criterion]:
    """A run that is killed at random times beside one that is not. ``standard`` is how many cases the standard tier
    has, which is too long a run to be killed so often.
    """
    folder, draw = out / "killed", random.Random(0)
    for _ in range(KILLS):
        killed_once(folder, draw.randint(1, 5))
    for there in (folder, out / "whole"):
        cases_begun(there).wait()
    have, want = (read(f / FILE)[1] for f in (folder, out / "whole"))
    other = [c for c in want if c not in have or comparable(have[c]) != comparable(want[c])]
    repeated = cases_repeated(folder / FILE)
    statuses = ", ".join(f"{n} {s}" for s, n in Counter(v.status for v in want.values()).most_common(3))
    return [
        Criterion(
            f"verdicts that differ after {KILLS} kills",
            len(other),
            "0",
            bool(want) and not other,
            f"{len(want)} cases: {statuses}",
        ),
        Criterion(
            f"cases repeated after {KILLS} kills",
            percent(repeated, standard),
            "at most 1.0 % of a standard run",
            repeated <= 0.01 * standard,
            f"{repeated} cases, {repeated / KILLS:.1f} a kill, of {standard}",
        ),
    ]


def comparable(verdict: object) -> tuple[object, ...]:
    return tuple(getattr(verdict, field) for field in ("status", "oracle", "sentence", "clause"))


def cases_begun(folder: Path) -> subprocess.Popen[bytes]:
    ops = [part for name in MEMBERS_KILLED for part in ("--op", name)]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "keel.cli",
            "conform",
            "--backend",
            SUBJECT,
            "--tier",
            "standard",
            "--jobs",
            "1",
            "--threads",
            "1",
            "--minimize",
            "0",
            "--out",
            str(folder),
            "--resume",
            *ops,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def killed_once(folder: Path, more: int) -> None:
    """Kills the run after ``more`` lines are added to its log."""
    process, limit, first = cases_begun(folder), time.monotonic() + PATIENCE, lines(folder / FILE)
    while process.poll() is None and lines(folder / FILE) < first + more and time.monotonic() < limit:
        time.sleep(0.01)
    process.kill()
    process.wait()


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def cases_repeated(file: Path) -> int:
    """How many cases were begun more often than once, each as often as it was."""
    count: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        try:
            count.update(json.loads(line).get("begin", ()))
        except ValueError:  # what was being written when it was killed
            continue
    return sum(n - 1 for n in count.values())


def onboarding_bars(out: Path, jobs: int) -> list[Criterion]:
    """From ``keel new`` to a page: a run of tier smoke on the backend as it was rendered."""
    begin, here = time.monotonic(), out / "keel_acme"
    out.mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    keel = [sys.executable, "-m", "keel.cli"]
    subprocess.run([*keel, "new", "acme", "--dir", str(here)], check=True, capture_output=True)
    code = subprocess.run(
        [
            *keel,
            "conform",
            "--backend",
            "keel_acme:backend",
            "--tier",
            "smoke",
            "--jobs",
            str(jobs),
            "--out",
            str(out / "run"),
        ],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
    )
    minutes = (time.monotonic() - begin) / 60
    page = next((out / "run").glob("*.html"), None)
    adapter = code_lines((here / "keel_acme" / "__init__.py").read_text())
    return [
        Criterion(
            "minutes from keel new to a report",
            minutes if page else None,
            f"less than {MINUTES:.0f}",
            page is not None and minutes < MINUTES,
            f"tier smoke, {jobs} processes, exit {code.returncode}",
        ),
        Criterion(
            "lines of the rendered adapter",
            adapter,
            f"at most {LINES}",
            adapter <= LINES,
            "of code: no blank lines, words or imports",
        ),
    ]


def code_lines(text: str) -> int:
    """Lines on which statements stand that are neither words nor imports."""
    return len(set(_lines_of(ast.parse(text).body)))


def _lines_of(body: Iterable[ast.stmt]) -> Iterable[int]:
    for stmt in body:
        match stmt:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.FunctionDef() | ast.ClassDef() | ast.If() | ast.For():
                yield stmt.lineno
                yield from _lines_of(stmt.body)
            case _:
                yield from range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)
