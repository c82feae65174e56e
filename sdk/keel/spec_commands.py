"""``keel spec``: the operator set's lock, its versions, its pages; and ``keel ops``, which shows what is in it."""

from __future__ import annotations

import json as js
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keel.errors import KeelError, printable
from keel.spec import MEMBERS, Op, lookup
from keel.spec import diff as differences
from keel.spec import lock as locks
from keel.spec.accounted import MEANINGS, Account, accounts
from keel.spec.excluded import EXCLUSIONS
from keel.spec.versions import CURRENT, version
from keel.torch_adapter import operator_named, signature

app = typer.Typer(no_args_is_help=True, help="The operator set: its lock, its versions, its pages.")


@app.command()
def lock(
    check: Annotated[bool, typer.Option(help="Write nothing; exit 1 if it differs from the declarations.")] = False,
    release: Annotated[bool, typer.Option(help="Freeze the lock: it never changes afterwards.")] = False,
) -> None:
    """Write the lock of the current declarations."""
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
    b: Annotated[str, typer.Argument(help="The same; the default is the current declarations.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print data instead of a table.")] = False,
) -> None:
    """List what changed between two versions, and which part of the version has to rise for it."""
    old, new = _lock(a), _lock(b) if b else locks.lock()
    changes = differences.diff(old, new)
    needed = differences.next_version(old, changes)
    if json:
        print(
            js.dumps(
                {
                    "from": old["opset"],
                    "to": new["opset"],
                    "level": differences.level(changes),
                    "next": str(needed),
                    "changes": [vars(d) for d in changes],
                },
                indent=1,
            )
        )
        return
    console = Console(highlight=False)
    if not changes:
        console.print("Nothing changed.")
        return
    table = _table("part", "member", "change")
    for d in changes:
        table.add_row(d.level, escape(printable(d.member)), escape(printable(d.sentence)))
    console.print(table)
    console.print(f"The first version after {old['opset']} that may hold these changes is {needed}.")


def _lock(what: str) -> locks.Lock:
    file = Path(what)
    if file.suffix == ".json":
        if not file.is_file():
            raise KeelError("bad-option", f"There is no file {what}.")
        return locks.read(file)
    return locks.locked(version(what))


@app.command()
def docs(
    folder: Annotated[Path, typer.Argument(help="Where the pages go.")] = Path("docs/spec"),
    harvest: Annotated[bool, typer.Option(help="First look for examples among PyTorch's OpInfos (minutes).")] = False,
) -> None:
    """Write a page for each operator, an index by family, and one that searches."""
    from keel.spec import examples, pages

    if harvest:
        print(f"{len(examples.harvest())} examples are in {examples.FILE}.")
    written, gone = pages.write(folder)
    print(f"{written} pages are in {folder}" + (f", and {gone} are gone." if gone else "."))


@app.command()
def overloads(
    how: Annotated[str, typer.Option(help="List the overloads that are accounted for in this way.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print data instead of a table.")] = False,
) -> None:
    """Account for every overload of PyTorch: covered by a member, decomposed, or left out. Exits with 1 if one is
    unknown.
    """
    listed = accounts()
    unknown = [a.name for a in listed if a.how == "unknown"]
    if json:
        print(js.dumps([vars(a) for a in listed], indent=1))
    elif how:
        _list_overloads(listed, how)
    else:
        _count_overloads(listed)
        print(f"Unknown: {', '.join(unknown)}." if unknown else "None is unknown.")
    raise typer.Exit(1 if unknown else 0)


def _list_overloads(listed: Sequence[Account], how: str) -> None:
    if how not in MEANINGS:
        raise KeelError(
            "bad-option", f"{how!r} is not a way to account for an overload.", {"ways": ", ".join(MEANINGS)}
        )
    table = _table("overload", "part of, or why")
    for a in listed:
        if a.how == how:
            table.add_row(a.name, escape(a.why))
    Console(highlight=False).print(table)


def _count_overloads(listed: Sequence[Account]) -> None:
    ways = Counter(a.how for a in listed)
    table = _table("overloads", "how", "meaning")
    for way, meaning in MEANINGS.items():
        table.add_row(str(ways[way]), way, meaning)
    table.add_row(str(len(listed)), "all", "", style="bold")
    console = Console(highlight=False)
    console.print(table)
    reasons = _table("overloads", "left out", "reason")
    for excluded in EXCLUSIONS:
        count = sum(a.why == excluded.name for a in listed if a.how == "left out")
        reasons.add_row(str(count or ""), excluded.name, escape(excluded.reason))
    console.print(reasons)


def ops(
    name: Annotated[str | None, typer.Argument(help="add, aten.add or aten.add.Tensor.")] = None,
    family: Annotated[str | None, typer.Option(help="The members of a family.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print data instead of text.")] = False,
) -> None:
    """Count the operators of the opset by family, list a family, or show an operator."""
    console = Console(highlight=False)
    members = lookup.find(name) if name is not None else _of(family) if family is not None else list(MEMBERS.values())
    if json:
        print(js.dumps([{"name": op.name, **_data(op)} for op in members], indent=1))
    elif name is not None:
        console.print(escape("\n\n".join(map(_page, members))), soft_wrap=True)
    elif family is not None:
        table = _table("operator", "kind", "meaning")
        for op in sorted(members, key=lambda op: op.name):
            table.add_row(op.name, op.kind, escape(_sentence(op.doc)))
        console.print(table)
    else:
        _show_families(console)


def _of(family: str) -> list[Op]:
    members = [op for op in MEMBERS.values() if op.family == family]
    if not members:
        raise KeelError(
            "bad-option",
            f"The opset has no family {family!r}.",
            {"families": ", ".join(sorted({op.family for op in MEMBERS.values()}))},
        )
    return members


def _show_families(console: Console) -> None:
    table = _table("family", "primitives", "composites", "opaque", "clauses")
    counted = lookup.families()
    for c in counted:
        table.add_row(c.family, *(str(n or "") for n in (c.primitive, c.composite, c.opaque, c.clauses)))
    sums = [sum(getattr(c, kind) for c in counted) for kind in ("primitive", "composite", "opaque", "clauses")]
    table.add_row(f"opset {CURRENT}", *map(str, sums), style="bold")
    console.print(table)


def _data(op: Op) -> dict[str, Any]:
    member: dict[str, Any] = locks.lock([op])["members"][op.name]
    return member


def _page(op: Op) -> str:
    """The declaration of an operator as text."""
    data = _data(op)
    kind = ", ".join([f"{op.kind}, {op.family}", f"profile {op.profile}", *sorted(op.tags)])
    lines = [f"{op.name} ({kind})", "", *_signatures(op), "", data["doc"]]
    lines += ["", *(f"  {label}  {text}" for label, text in data["clauses"].items())] if data["clauses"] else []
    lines += ["", *_results(data["results"])] if op.kind != "opaque" or data["results"] else []
    lines += [f"  requires  {sentence}" for sentence in data["requires"]]
    lines += [f"  dtypes    {', '.join(locks.name_of(d) for d in op.dtypes)}"] if op.dtypes else []
    lines += [f"  opaque because  {op.reason}"] if op.reason else []
    lines += [f"  decomposition   {data['decomposition']}"] if data["decomposition"] else []
    return "\n".join(lines)


def _signatures(op: Op) -> list[str]:
    known = {name: operator_named(name) for name in op.overloads}
    return [f"  {(operator and signature(operator)) or name}" for name, operator in known.items()]


def _results(results: Any) -> list[str]:
    match results:
        case None:
            return ["  The types of the results follow from the decomposition."]
        case str():
            return [f"  {results}"]
        case []:
            return ["  It has no results."]
    return [
        f"  result {i}  {r['dtype']}, {r['shape']}, {r['layout']}{' or any dense' if not r['exact'] else ''}"
        f"{', or None' if r['optional'] else ''}"
        for i, r in enumerate(results)
    ]


def _sentence(doc: str) -> str:
    return " ".join(doc.strip().partition("\n\n")[0].split())


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in _NUMBERS else "left")
    return table


_NUMBERS = ("overloads", "primitives", "composites", "opaque", "clauses")
