"""The options of ``keel conform``: what each is called, what it takes, and what its help says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .cases.plan import TIERS
from .levels.level import profile_names

Backend = Annotated[
    str, typer.Option(help="The one to judge: an installed backend, module:attribute, or a backend of torch.compile.")
]
ProfileName = Annotated[
    str,
    typer.Option(
        "--profile",
        help=f"The cases of the run, and the level that the backend has to reach: {', '.join(profile_names())}.",
    ),
]
For = Annotated[
    str,
    typer.Option(
        "--for", help="Judge what this model needs, and nothing else: MODULE:FACTORY, or a file of torch.export.save."
    ),
]
Tier = Annotated[
    str,
    typer.Option(
        help=f"How many cases: {', '.join(TIERS)}. smoke has about five cases of each operator, a call that breaks a "
        "precondition, and the most telling programs, graphs and kernels: minutes. standard has every pair of levels "
        "of an operator's arguments, at least 200 cases, and all programs, graphs and kernels: hours. full has four "
        "times as many cases of operators and three seeds of each program."
    ),
]
Ops = Annotated[list[str] | None, typer.Option("--op", help="Only what fits this pattern; repeatable.")]
Seed = Annotated[int, typer.Option(help="Seed for choosing the cases and drawing their values.")]
Out = Annotated[Path | None, typer.Option(help="The folder of the run: its log and its reports.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the --out folder.")]
ShardText = Annotated[str, typer.Option("--shard", help="Only the cases of this host, number i of n: i/n.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at a time that run cases.")]
Ray = Annotated[
    str, typer.Option("--ray", help="Run on the Ray cluster with this address (auto for that of this machine).")
]
RayResource = Annotated[
    str, typer.Option("--ray-resource", help="The custom resource of which a task takes one: each board has one.")
]
Waivers = Annotated[
    Path | None, typer.Option("--waivers", help="Failures that are known and accepted for a while, as TOML.")
]
TimeLimit = Annotated[float, typer.Option(help="Seconds that one case may take.")]
Memory = Annotated[float, typer.Option(help="GiB that a process may take beyond those that it starts with.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads that a process may run cases with.")]
Minimize = Annotated[
    float,
    typer.Option("--minimize", "--minimise", help="Seconds for making failures smaller and for running their scripts."),
]
Folders = Annotated[list[Path], typer.Argument(help="The --out folders of all shards.")]
Merged = Annotated[Path | None, typer.Option(help="The folder of the run that they are together.")]
Importable = Annotated[
    str,
    typer.Option(
        help="The one that the runs have to be of; a module:attribute has to be said, because it is imported to write "
        "scripts of failures."
    ),
]
