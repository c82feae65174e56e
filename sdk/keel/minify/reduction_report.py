"""What a reduction leaves in a folder: the script, a text that is ready to file, and the dumps of both sides."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from keel.discovery import installed
from keel.errors import count
from keel.minify.failing_model import Reduction
from keel.minify.failure import RUNNING, Subject, Trial
from keel.minify.graph_program import Program
from keel.minify.program_script import program_lines
from keel.minify.program_trials import attempt
from keel.minify.trial_process import TrialProcess

SCRIPT, TEXT, DATA, DUMPS = "failing.py", "report.md", "report.json", "dumps"
SECONDS, CALLS = 60.0, 3.0
"""The most seconds of CPU time for compiling, which writes the dumps, and for the calls after it, which may hang."""


def write(reduction: Reduction, out: Path) -> list[Path]:
    """Writes the files, and returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    (out / SCRIPT).write_text(reduction.text, encoding="utf-8")
    (out / TEXT).write_text(text(reduction), encoding="utf-8")
    (out / DATA).write_text(json.dumps(data(reduction), indent=1) + "\n", encoding="utf-8")
    dump(reduction, out / DUMPS)
    return [out / SCRIPT, out / TEXT, out / DATA, out / DUMPS]


def text(reduction: Reduction) -> str:
    """The text to file, in Markdown."""
    failure, fault = reduction.failure, reduction.fault
    title = f"{', '.join(reduction.subject.backends)}: {failure.kind} in {_operators(reduction.program)}"
    lines = [
        f"# {title}",
        "",
        failure.sentence,
        "",
        f"**Stage:** {fault.stage or 'unknown'}. {fault.sentence}",
        "",
        *(f"* {key}: {value}" for key, value in facts(reduction.subject).items()),
        f"* graph: the {reduction.program.kind} graph of the model, {count(reduction.before, 'call')} before",
        "",
        "## Program",
        "",
        "```python",
        *program_lines(reduction.program),
        "```",
        "",
        "## Stages that were swapped for their reference",
        "",
        *(f"* {swap}: {what}" for swap, what in fault.outcomes),
        *(f"* {swap}, not tried: {why}" for swap, why in fault.skipped),
        "",
        f"## Script ({SCRIPT})",
        "",
        _about_script(reduction),
        "",
        "```python",
        *reduction.text.rstrip("\n").splitlines(),
        "```",
    ]
    return "\n".join(lines) + "\n"


def data(reduction: Reduction) -> dict[str, Any]:
    """The same for programs."""
    failure, fault, program = reduction.failure, reduction.fault, reduction.program
    return {
        "kind": failure.kind,
        "failure": failure.sentence,
        "stage": fault.stage,
        "fault": fault.sentence,
        "outcomes": dict(fault.outcomes),
        "not_tried": dict(fault.skipped),
        "graph": program.kind,
        "operators": [call.op for call in program.calls],
        "calls": program.size,
        "before": reduction.before,
        "lines": reduction.text.count("\n"),
        "backends": list(reduction.subject.backends),
        "options": dict(reduction.subject.options),
        "shown": reduction.shown,
        "right_without": reduction.right_without,
        "trials": reduction.trials,
        "seconds": round(reduction.seconds, 1),
    }


def _about_script(reduction: Reduction) -> str:
    shown = "It exits with 1 here" if reduction.shown else "It did not exit with 1 here"
    right = "with 0" if reduction.right_without else "not with 0"
    return f"{shown}, and {right} if eager PyTorch takes the place of the backends."


def _operators(program: Program) -> str:
    names = list(dict.fromkeys(call.op for call in program.calls if call.op != "getitem"))
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def facts(subject: Subject) -> Mapping[str, str]:
    """Versions, processor and devices."""
    claims = installed()
    packages = {text: _version(points[0].package) for text in subject.backends if (points := claims.get(text))}
    return {
        "backends": ", ".join(f"{text} ({packages[text]})" if text in packages else text for text in subject.backends),
        "options": ", ".join(f"{name}={value!r}" for name, value in subject.options) or "default",
        "PyTorch": torch.__version__,
        "Keel": _version("torch-keel"),
        "Python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
    }


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except Exception:  # a distribution without metadata
        return package


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def dump(reduction: Reduction, folder: Path) -> None:
    """Writes the stages of both sides: of the failing compilation, and of eager PyTorch in place of its parts."""
    for side, swap in (("failing", ""), ("reference", "eager parts")):
        (folder / side).mkdir(parents=True, exist_ok=True)
        with TrialProcess(environment={"KEEL_DUMP": str((folder / side).resolve())}) as process:
            trial = Trial(reduction.program, reduction.subject, swap)
            process.run(attempt, trial, seconds=SECONDS, limits={RUNNING: CALLS})
