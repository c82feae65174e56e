"""``keel conform``: is a backend right? Every case counted, with what it is of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from keel import KeelError, documents

from .cases.case import Case
from .cases.plan import PROFILES, TIERS
from .certificate.cli import certify_command, verify_command
from .cli_options import CORES, choose
from .devices import check_registered
from .harness import merge_shards as shards
from .harness import summary, waivers
from .harness.backend_under_test import load_backend
from .harness.journal import FILE, Journal, stating
from .harness.parallel_plan import plan_in_parallel
from .harness.protocol import Settings
from .harness.run import RunResult, Shard, digest, run
from .report import join_names
from .reporting.write_reports import SECONDS, reports
from .results.verdict import Verdict, conforms, declarations, totals
from .workers.command_run import Interruption, interruptible, progress_on

app = typer.Typer(add_completion=False)
app.command("certify")(certify_command)
app.command("verify")(verify_command)
GIB = 2**30
MAKER = "keel conform"
Waivers = Annotated[Path | None, typer.Option(help="Failures that are known and accepted for a while, as TOML.")]


@app.callback(invoke_without_command=True)
def conform(
    ctx: typer.Context,
    backend: Annotated[
        str,
        typer.Option(help="The one to judge: an installed backend, module:attribute, or a backend of torch.compile."),
    ] = "",
    profile: Annotated[str, typer.Option(help=f"What it has to hold: {', '.join(PROFILES)}.")] = "core",
    tier: Annotated[str, typer.Option(help=f"How many cases: {', '.join(TIERS)}.")] = "standard",
    op: Annotated[list[str] | None, typer.Option(help="Only what fits this pattern; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for choosing the cases and drawing their values.")] = 0,
    out: Annotated[Path | None, typer.Option(help="The folder of the run: its log and its reports.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the --out folder.")] = False,
    shard: Annotated[str, typer.Option(help="Only the cases of this host, number i of n: i/n.")] = "1/1",
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time that run cases.")] = CORES,
    waived: Annotated[
        Path | None, typer.Option("--waivers", help="Failures that are known and accepted for a while, as TOML.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds that one case may take.")] = Settings.limit,
    memory: Annotated[float, typer.Option(help="GiB that a process may take beyond those that it starts with.")] = 6.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads that a process may run cases with.")] = Settings.threads,
    minimize: Annotated[
        float,
        typer.Option(
            "--minimize", "--minimise", help="Seconds for making failures smaller and for running their scripts."
        ),
    ] = SECONDS,
) -> None:
    """Judge a backend. Exits with 0 if it conforms, with 1 if it does not, with 2 if nothing was run."""
    if ctx.invoked_subcommand is not None:
        return
    if not backend:
        raise typer.BadParameter("Which backend is to be judged? --backend says it.")
    if resume and out is None:
        raise typer.BadParameter("--resume goes on with the run in a folder: which one, --out says.")
    about: dict[str, Any] = {
        "profile": choose("profile", [profile], tuple(PROFILES))[0],
        "tier": choose("tier", [tier], tuple(TIERS))[0],
        "seed": seed,
        "ops": list(op or []),
    }
    part, console = Shard.read(shard), _console()
    under_test = load_backend(backend)  # a wrong name is said before anything takes time
    check_registered(backend, under_test.device)
    if out is not None:
        documents.claim(out, MAKER)
    accepted = waivers.read(waived, backend) if waived else ()
    settings = Settings(backend, int(memory * GIB), threads, time_limit)
    cases = plan_in_parallel(**about, jobs=jobs)
    if facts := under_test.backend.arithmetic.sentences():
        about["declared"] = ", ".join(facts)
    _run_and_report(
        console, cases, settings, part, accepted, out=out, minimize=minimize, jobs=jobs, resume=resume, **about
    )


@app.command()
def merge(
    folders: Annotated[list[Path], typer.Argument(help="The --out folders of all shards.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the run that they are together.")] = None,
    waived: Waivers = None,
    backend: Annotated[
        str,
        typer.Option(
            help="The one that the runs have to be of; a module:attribute has to be said, "
            "because it is imported to write scripts of failures."
        ),
    ] = "",
) -> None:
    """Make one run of the runs of all shards. Exits as that run would have."""
    together = shards.merge_shards(folders)
    head = stating(folders[0] / FILE, together.head, "profile", "tier", "seed", "ops", "digest")
    if backend and backend != head["backend"]:
        raise KeelError("bad-option", f"The runs are of the backend {head['backend']}, not of {backend}.")
    cases = plan_in_parallel(**{k: head[k] for k in ("profile", "tier", "seed", "ops")}, jobs=CORES)
    if digest(cases) != head["digest"]:
        raise KeelError(
            "bad-option",
            "The shards are of a plan that is not this version's.",
            do="Merge with the version of the suite that ran them.",
        )
    finished = [together.verdicts[c.id] for c in cases if c.id in together.verdicts]
    if out is not None:
        documents.claim(out, MAKER)
        journal = Journal.opened(out, head)
        journal.end(finished)
        journal.close()
    accepted = waivers.read(waived, head["backend"]) if waived else ()
    verdicts, problems = _accepted(finished, accepted, cases, full_plan=not head["ops"])
    if together.missing:
        problems.append(f"Shards are missing: {join_names(map(str, together.missing))}.")
    if len(finished) < len(cases) and not together.missing:
        problems.append(f"{len(cases) - len(finished)} cases of the shards were not run to their end.")
    facts = [f"{len(folders)} shards, judged: {head['backend']}.", *declarations(head.get("declared", ""), verdicts)]
    if out is not None:
        facts += reports(out, cases, verdicts, problems, importing=bool(backend) or ":" not in head["backend"])
    summary.show(_console(), verdicts, len(cases), facts, problems)
    raise typer.Exit(status(verdicts, problems))


def status(verdicts: Sequence[Verdict], problems: Sequence[str]) -> int:
    """0 if the verdicts conform and nothing else is wrong, 1 if not, 2 if nothing was run."""
    counts = totals(verdicts)
    if sum(counts.values()) == counts["not run"] + counts["not claimed"]:
        return 2
    return 0 if conforms(counts) and not problems else 1


def _run_and_report(
    console: Console,
    cases: Sequence[Case],
    settings: Settings,
    part: Shard,
    accepted: Sequence[waivers.Waiver],
    *,
    out: Path | None,
    minimize: float,
    **how: Any,
) -> None:
    """Runs the cases of a shard, writes reports into ``out`` and shows a summary.  Raises typer.Exit."""
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(TemporaryDirectory(prefix="keel-conform-")))
        interruption = stack.enter_context(interruptible())
        ran = _watched(console, cases, settings, interruption, part, out=folder, **how)
        planned = part.of_plan(cases)
        facts = [_cost(ran), *([f"The log is in {out}."] if out else [])]
        verdicts, problems = _accepted(ran.verdicts, accepted, planned, full_plan=not how["ops"], part=part.of > 1)
        facts += declarations(how.get("declared", ""), verdicts)
        if interruption.by is not None:
            problems.append(f"Stopped by {interruption.by.name}{'; --resume goes on' if out else ''}.")
        if out is not None:
            seconds = 0.0 if interruption.by is not None else minimize
            facts += reports(out, planned, verdicts, problems, spent=ran.seconds, seconds=seconds)
        summary.show(console, verdicts, len(planned), facts, problems)
    if interruption.by is not None:
        raise typer.Exit(128 + interruption.by)
    raise typer.Exit(status(verdicts, problems))


def _watched(
    console: Console, cases: Sequence[Case], settings: Settings, interruption: Interruption, shard: Shard, **how: Any
) -> RunResult:
    with progress_on(console) as progress:
        task = progress.add_task(settings.subject, total=len(shard.of_plan(cases)))

        def on_verdicts(verdicts: Sequence[Verdict]) -> None:
            progress.advance(task, len(verdicts))

        return run(
            cases,
            settings.subject,
            shard=shard,
            settings=settings,
            on_verdicts=on_verdicts,
            stopped=lambda: interruption.by is not None,
            **how,
        )


def _accepted(
    verdicts: Sequence[Verdict],
    accepted: Sequence[waivers.Waiver],
    cases: Sequence[Case],
    *,
    full_plan: bool,
    part: bool = False,
) -> tuple[list[Verdict], list[str]]:
    """Returns the verdicts with waivers applied, and what is wrong with the waivers. The limits on how much is waived
    are not applied to a ``part``, that is a shard.
    """
    day = date.today()
    wrong = waivers.problems(verdicts, accepted, [c.id for c in cases], day, full_plan=full_plan and not part)
    result = waivers.apply_waivers(verdicts, accepted, day)
    return result, wrong + ([] if part else waivers.excess(result, full_plan=full_plan))


def _cost(ran: RunResult) -> str:
    count, overhead = int(ran.clock.get("cases", 0)), ran.overhead
    if overhead is None or not ran.seconds:
        return "No case was run now."
    return (
        f"{count} cases in {ran.seconds:.1f} s, {count / ran.seconds:.1f} a second. {1e3 * overhead:.1f} ms a case "
        "are the harness's own."
    )


def _console() -> Console:
    return Console(width=None if os.isatty(1) else 200)
