"""``keel conform``: is a backend right? Every case counted, with what it is of."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.console import Console

from keel import KeelError, documents

from . import conform_options as options
from .cases.case import Case
from .cases.plan import TIERS
from .certificate.cli import COMMANDS
from .cli_options import CORES, choose
from .devices import check_registered
from .harness import merge_shards as shards
from .harness import summary, waivers
from .harness.backend_under_test import load_backend
from .harness.journal import FILE, Journal, stating
from .harness.parallel_plan import plan_in_parallel
from .harness.protocol import Settings
from .harness.ray_run import Cluster
from .harness.run import RunResult, Shard, digest, run
from .levels.level import model_profile, profile_names, profile_of
from .levels.level_plan import needs_of_model
from .levels.needs import Needs, needs_in, write_needs
from .levels.standing import headline, standings, unmet
from .report import join_names
from .reporting.write_reports import SECONDS, reports
from .results.verdict import BAD, Verdict, conforms, declarations, totals
from .witnesses.cli import witnesses_command
from .workers.command_run import Interruption, PlainProgress, interruptible, progress_on

app = typer.Typer(add_completion=False)
for name, command in COMMANDS.items():
    app.command(name)(command)
app.command("witnesses")(witnesses_command)
GIB = 2**30
MAKER = "keel conform"


@app.callback(invoke_without_command=True)
def conform(
    ctx: typer.Context,
    backend: options.Backend = "",
    profile: options.ProfileName = "core",
    model: options.For = "",
    tier: options.Tier = "standard",
    op: options.Ops = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    resume: options.Resume = False,
    shard: options.ShardText = "1/1",
    jobs: options.Jobs = CORES,
    ray: options.Ray = "",
    ray_resource: options.RayResource = "",
    waived: options.Waivers = None,
    time_limit: options.TimeLimit = Settings.limit,
    memory: options.Memory = 6.0,
    threads: options.Threads = Settings.threads,
    minimize: options.Minimize = SECONDS,
) -> None:
    """Judge a backend. Exits with 0 if it conforms, with 1 if it does not, with 2 if nothing was run."""
    if ctx.invoked_subcommand is not None:
        return
    if not backend:
        raise typer.BadParameter("Which backend is to be judged? --backend says it.")
    if resume and out is None:
        raise typer.BadParameter("--resume goes on with the run in a folder: which one, --out says.")
    choose("profile", [profile], profile_names())
    choose("tier", [tier], TIERS)
    part, console = Shard.read(shard), _console()
    under_test = load_backend(backend)  # a wrong name is said before anything takes time
    check_registered(backend, under_test.device)
    needs, facts = needs_of_model(model) if model else (None, [])
    about = About(model_profile(model, needs) if needs else profile, tier, seed, tuple(op or ()), needs)
    if out is not None:
        documents.claim(out, MAKER)
    accepted = waivers.read(waived, backend) if waived else ()
    settings = Settings(backend, int(memory * GIB), threads, time_limit)
    cluster = Cluster(ray, ray_resource) if ray else None
    about = replace(about, declared=", ".join(under_test.arithmetic.sentences()))
    _run_and_report(
        console,
        about,
        settings,
        part,
        accepted,
        facts,
        out=out,
        minimize=minimize,
        jobs=jobs,
        resume=resume,
        cluster=cluster,
    )


@dataclass(frozen=True)
class About:
    """What a run is about: which cases, and by what its verdict is reached. ``needs`` are those of a model."""

    profile: str
    tier: str
    seed: int
    ops: tuple[str, ...]
    needs: Needs | None = None
    declared: str = ""

    @property
    def head(self) -> dict[str, Any]:
        """The fields of the log's first line."""
        fields = {"profile": self.profile, "tier": self.tier, "seed": self.seed, "ops": list(self.ops)}
        return fields | ({"declared": self.declared} if self.declared else {})

    def plan(self, jobs: int) -> tuple[Case, ...]:
        fields = {"profile": self.profile, "tier": self.tier, "seed": self.seed, "ops": self.ops}
        return plan_in_parallel(**fields, jobs=jobs, needs=self.needs)  # type: ignore[arg-type]


@app.command()
def merge(
    folders: options.Folders,
    out: options.Merged = None,
    waived: options.Waivers = None,
    backend: options.Importable = "",
) -> None:
    """Make one run of the runs of all shards. Exits as that run would have."""
    together = shards.merge_shards(folders)
    head = stating(folders[0] / FILE, together.head, "profile", "tier", "seed", "ops", "digest")
    if backend and backend != head["backend"]:
        raise KeelError("bad-option", f"The runs are of the backend {head['backend']}, not of {backend}.")
    about = About(head["profile"], head["tier"], head["seed"], tuple(head["ops"]), needs_in(folders[0]))
    cases = about.plan(CORES)
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
        write_needs(out, about.needs)
    accepted = waivers.read(waived, head["backend"]) if waived else ()
    verdicts, problems = _accepted(finished, accepted, cases, full_plan=not head["ops"])
    if together.missing:
        problems.append(f"Shards are missing: {join_names(map(str, together.missing))}.")
    if len(finished) < len(cases) and not together.missing:
        problems.append(f"{len(cases) - len(finished)} cases of the shards were not run to their end.")
    facts = [f"{len(folders)} shards, judged: {head['backend']}.", *declarations(head.get("declared", ""), verdicts)]
    line = _levels(about, head["backend"], cases, verdicts, problems, complete=not together.missing)
    if out is not None:
        facts += reports(out, cases, verdicts, problems, importing=bool(backend) or ":" not in head["backend"])
    summary.show(_console(), verdicts, len(cases), facts, problems, line)
    raise typer.Exit(status(verdicts, problems))


def _levels(
    about: About,
    subject: str,
    cases: Sequence[Case],
    verdicts: Sequence[Verdict],
    problems: list[str],
    *,
    complete: bool,
) -> str:
    """The verdict on the run in a line. Adds to ``problems`` if the level that the run was for is not reached."""
    profile = profile_of(about.profile, about.needs)
    reached = standings(profile, cases, verdicts)
    right = conforms(totals(verdicts)) and not problems
    problems += unmet(profile, reached, subject, complete=complete and not about.ops)
    return headline(subject, profile, right, reached)


def status(verdicts: Sequence[Verdict], problems: Sequence[str]) -> int:
    """0 if the verdicts conform and nothing else is wrong, 1 if not, 2 if nothing was run."""
    counts = totals(verdicts)
    if sum(counts.values()) == counts["not run"] + counts["not claimed"]:
        return 2
    return 0 if conforms(counts) and not problems else 1


def _run_and_report(
    console: Console,
    about: About,
    settings: Settings,
    part: Shard,
    accepted: Sequence[waivers.Waiver],
    facts: Sequence[str],
    *,
    out: Path | None,
    minimize: float,
    **how: Any,
) -> None:
    """Runs the cases of a shard, writes reports into ``out`` and shows a summary.  Raises typer.Exit."""
    begin = time.monotonic()
    cases = about.plan(how["jobs"])
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(TemporaryDirectory(prefix="keel-conform-")))
        write_needs(folder, about.needs)
        interruption = stack.enter_context(interruptible())
        ran = _watched(console, cases, settings, interruption, part, out=folder, **how, **about.head)
        planned = part.of_plan(cases)
        facts = [*facts, _cost(ran), *([f"The log is in {out}."] if out else [])]
        verdicts, problems = _accepted(ran.verdicts, accepted, planned, full_plan=not about.ops, part=part.of > 1)
        facts += declarations(about.declared, verdicts)
        if interruption.by is not None:
            problems.append(f"Stopped by {interruption.by.name}{'; --resume goes on' if out else ''}.")
        line = _levels(about, settings.subject, planned, verdicts, problems, complete=part.of == 1)
        if out is not None:
            seconds = 0.0 if interruption.by is not None else minimize
            facts += reports(out, planned, verdicts, problems, spent=ran.seconds, seconds=seconds)
        facts.append(f"The command took {time.monotonic() - begin:.1f} s, planning and reports included.")
        summary.show(console, verdicts, len(planned), facts, problems, line)
    if interruption.by is not None:
        raise typer.Exit(128 + interruption.by)
    raise typer.Exit(status(verdicts, problems))


def _watched(
    console: Console, cases: Sequence[Case], settings: Settings, interruption: Interruption, shard: Shard, **how: Any
) -> RunResult:
    total = len(shard.of_plan(cases))
    lines = None if console.is_terminal else PlainProgress(console, settings.subject, total)
    with progress_on(console) if lines is None else nullcontext() as progress:
        task = None if progress is None else progress.add_task(settings.subject, total=total)

        def on_verdicts(verdicts: Sequence[Verdict]) -> None:
            if lines is not None:
                lines.advance(len(verdicts), sum(v.status in BAD for v in verdicts))
            elif progress is not None and task is not None:
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
