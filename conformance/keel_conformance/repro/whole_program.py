"""A contract program run as a whole by a script, where no part of it is wrong by itself."""

from __future__ import annotations

from pathlib import Path

from ..cases.case import Case
from ..devices import HOST, has_eager
from ..harness.backend_under_test import load_backend
from ..programs import PROGRAMS, calls_of, judge, run_case
from ..programs.restricted_compiler import Compiler
from ..results.verdict import BAD, Verdict
from . import script
from .written_script import name_of


def show(subject: str, name: str, *, seed: int, calls: int) -> int:
    """Runs a contract program with the backend and in eager PyTorch, prints what differs, and returns 1 if it fails."""
    under_test, program = load_backend(subject), PROGRAMS[name]
    case = Case(name, program.chapter, "program", program.profile, choice=(("calls", f"calls{calls}"),), seed=seed)
    observed = run_case(case, Compiler(under_test.backend), under_test.device)
    device = under_test.device if has_eager(under_test.device) else HOST
    verdict: Verdict = judge(case, observed, device)
    print(f"expected what eager PyTorch gives, found: {verdict.status}. {verdict.sentence} {verdict.clause}".strip())
    return int(verdict.status in BAD)


def write_whole(folder: Path, subject: str, case: Case, v: Verdict) -> Path:
    """Writes a script of the whole program, which needs the suite to run."""
    call = f"show({subject!r}, {case.op!r}, seed={case.seed}, calls={calls_of(case)})"
    lines = [
        script.title(v, subject),
        "import sys",
        "",
        "from keel_conformance.repro.whole_program import show",
        "",
        "# No part of the program is wrong by itself, so all of it runs here, as the suite has it.",
        f"sys.exit({call})",
        "",
    ]
    path = folder / name_of(case)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
