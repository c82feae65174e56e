"""All files of a run in its folder: the scripts of failures, JSON, JUnit, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..cases.case import Case
from ..harness.journal import FILE, read
from ..levels.needs import needs_in
from ..report import join_names
from ..repro.write_scripts import paths
from ..repro.write_scripts import write as write_scripts
from ..repro.written_script import FOLDER
from ..results.verdict import Verdict
from . import html_report, json_report

SECONDS = 600.0
"""For making failures smaller and trying their scripts, in all."""


def reports(
    folder: Path,
    cases: Sequence[Case],
    verdicts: Sequence[Verdict],
    problems: Sequence[str] = (),
    *,
    spent: float = 0.0,
    seconds: float = SECONDS,
    importing: bool = True,
) -> list[str]:
    """Writes them beside the log, and says in sentences what lies where. ``spent`` is what the run took. Scripts are
    written and tried with the backend that the log names, unless ``importing`` that one on the log's word is refused.
    """
    head, _, _ = read(folder / FILE)
    if head is None:
        raise ValueError(f"The log in {folder} has no head.")
    subject = str(head["backend"])
    scripts = write_scripts(folder, subject, cases, verdicts, seconds=seconds) if importing else []
    document = json_report.document(
        json_report.Run(head, cases, verdicts, problems, spent, paths(scripts), needs_in(folder))
    )
    json_report.write(folder, document, verdicts)
    where = html_report.write(folder, document)
    facts = [f"The report is {where}; {json_report.REPORT} and {json_report.JUNIT} lie beside it."]
    if not importing:
        facts.append(
            f"No failure has a script: {subject.partition(':')[0]} would be imported, because the logs say so. "
            f"If you trust them, say --backend {subject}."
        )
    if scripts:
        with_script, shown = sum(bool(w.path) for w in scripts), sum(w.shown for w in scripts)
        confirmed = f"{shown} of these {'was' if shown == 1 else 'were'} seen to fail when run alone"
        facts.append(f"{with_script} of {len(scripts)} failures have a script in {folder / FOLDER}; {confirmed}.")
    if lacking := [w for w in scripts if not w.path]:
        facts.append(f"No script for {join_names((w.case for w in lacking), 3)}: {lacking[0].lacking}")
    return facts
