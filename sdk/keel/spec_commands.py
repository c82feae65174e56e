"""``keel spec``: the operator set's lock, its versions, its pages."""
from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keel.errors import KeelError
from keel.spec import diff as differences
from keel.spec import lock as locks
from keel.spec.versions import CURRENT, version

app = typer.Typer(no_args_is_help=True, help="The operator set: its lock, its versions, its pages.")


@app.command()
def lock(
    check: Annotated[bool, typer.Option(help="Write nothing; exit 1 if the lock differs from the declarations.")] = False,
    release: Annotated[bool, typer.Option(help="Make it a lock that never changes.")] = False,
) -> None:
    """Write the lock of the declarations at hand."""
    file, new = locks.path_of(CURRENT), locks.lock()
    same = file.is_file() and file.read_text() == locks.text(new)
    if check:
        print(f"{file} {'is' if same else 'is not'} the lock of the declarations.")
        raise typer.Exit(0 if same else 1)
    locks.write(release=release, new=new)
    state = "never changes from now on" if release else "did not change" if same else "is written"
    print(f"{file} {state}: {len(new['members'])} members, digest {new['digest'][:16]}.")


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="A version, or a lock file.")],
    b: Annotated[str, typer.Argument(help="The same; by default the declarations at hand.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print data instead of a table.")] = False,
) -> None:
    """List what changed between two versions, and which part of the version has to rise for it."""
    old, new = _lock(a), _lock(b) if b else locks.lock()
    found = differences.diff(old, new)
    needed = differences.next_version(old, found)
    if json:
        print(js.dumps({"from": old["opset"], "to": new["opset"], "level": differences.level(found),
                        "next": str(needed), "changes": [vars(d) for d in found]}, indent=1))
        return
    console = Console(highlight=False)
    if not found:
        console.print("Nothing changed.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("part", "member", "change"):
        table.add_column(column, overflow="fold")
    for d in found:
        table.add_row(d.level, d.member, escape(d.sentence))
    console.print(table)
    console.print(f"The first version after {old['opset']} that may hold these changes is {needed}.")


def _lock(what: str) -> locks.Lock:
    file = Path(what)
    if file.suffix == ".json":
        if not file.is_file():
            raise KeelError("bad-option", f"There is no file {what}.")
        return locks.read(file)
    return locks.locked(version(what))
