"""``keel conform NAME``: the smoke cases on one backend, counted."""
from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from .cases import cases
from .trial import Verdict, judge

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def conform(
    backend: Annotated[str, typer.Argument(help="The installed backend to judge.")],
    case: Annotated[str, typer.Option(help="Only cases whose name matches this pattern.")] = "*",
    seed: Annotated[int, typer.Option(help="Of the cases' random values.")] = 0,
) -> None:
    """Judge a backend by small programs. Exits with 1 if one fails, with 2 if none was run."""
    import keel

    keel.find(backend)                                       # a wrong name is said at once, by its own error
    console = Console()
    chosen = [c for c in cases() if fnmatch(c.name, case)]
    verdicts = [judge(c, backend, seed) for c in track(chosen, "conform", console=console, transient=True)]
    _show(console, backend, verdicts)
    counts = Counter(v.status for v in verdicts)
    if not counts["pass"] + counts["fail"] + counts["error"]:
        raise typer.Exit(2)
    if counts["fail"] + counts["error"]:
        raise typer.Exit(1)


def _show(console: Console, backend: str, verdicts: list[Verdict]) -> None:
    bad = [v for v in verdicts if v.why]
    if bad:
        table = Table("case", "verdict", "why")
        for v in bad:
            table.add_row(v.case, v.status, v.why)
        console.print(table)
    if unclaimed := [v.case for v in verdicts if v.status == "not claimed"]:
        console.print(f"not claimed: {', '.join(unclaimed)}", highlight=False)
    counts = Counter(v.status for v in verdicts)
    console.print(f"{backend}: of {len(verdicts)} cases {counts['pass']} pass, {counts['fail']} fail, "
                  f"{counts['error']} raise, {counts['not claimed']} are not claimed.", highlight=False)
