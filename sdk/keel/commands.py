"""The commands of ``keel``: list plugins, explain placements, run saved kernels, create plugins."""

from __future__ import annotations

import json as js
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keel import opt as kernels
from keel.debug_commands import compare, profile
from keel.discovery import Discovery, find, installed, survey
from keel.documents import Malformed, bad_file, text_of
from keel.entry_points import Carried
from keel.errors import KeelError
from keel.explanation import Explanation
from keel.explanation import explain as explained
from keel.minify_command import minify
from keel.named_models import called_model, names_in
from keel.new import LEVELS
from keel.new import new as render
from keel.package_commands import inspect, package
from keel.plugin import Option
from keel.quarantine import LIMIT
from keel.reports import duration
from keel.settings import PLACEMENTS
from keel.spec_commands import ops
from keel.what_if import Step, merged

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Put a PyTorch 2 backend under any accelerator.",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print data instead of a table.")]


@app.command()
def backends(
    again: Annotated[
        bool,
        typer.Option(help="Import plugins in a separate process again, even if the outcome is cached."),
    ] = False,
    limit: Annotated[float, typer.Option(help="The most seconds for such an import.")] = LIMIT,
    json: AsJson = False,
) -> None:
    """List installed backends: which can be used here, and what is wrong with the others."""
    with _stdout_kept():
        discovery = survey(limit=limit, again=again)
    rows = [
        _row(name, f"{name} of {point.package}" if i else name, point, discovery)
        for name, points in sorted(installed().items())
        for i, point in enumerate(points)
    ]
    rows += [
        {"name": "", "usable": False, **_facts(None), "package": package, "problem": str(problem), "notes": []}
        for package, problem in discovery.damaged.items()
    ]
    if json:
        print(js.dumps(rows, indent=1))
        return
    table = _table("name", "level", "device", "usable", "package")
    for r in rows:
        table.add_row(
            escape(str(r["name"])),
            str(r["level"] or ""),
            str(r["device"] or ""),
            "yes" if r["usable"] else "no",
            escape(str(r["package"])),
        )
    console = Console(highlight=False)
    console.print(table)
    for r in rows:
        if r["problem"]:
            console.print(f"\n{escape(str(r['problem']))}", soft_wrap=True)
        if r["arithmetic"]:
            console.print(f"\n{escape(str(r['name']))} {escape(', '.join(r['arithmetic']))}.", soft_wrap=True)
        for option in r["options"]:
            console.print(f"\n{escape(_option_text(option))}", soft_wrap=True)
        if r["notes"]:
            console.print(
                f"\n{escape(str(r['name']))} changed {escape(' and '.join(r['notes']))} when it was "
                "imported; Keel put that back.",
                soft_wrap=True,
            )


def _row(name: str, key: str, point: Carried, discovery: Discovery) -> dict[str, Any]:
    """The row for a distribution's claim to a name. ``key`` is its key in ``discovery``."""
    problem = discovery.problems.get(key)
    return {
        "name": name,
        "usable": key in discovery.backends,
        **_facts(discovery.backends.get(key)),
        "package": _package(point),
        "problem": None if problem is None else str(problem),
        "notes": list(discovery.notes.get(key, ())),
    }


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Redirects standard output to standard error, also for C code, so that only the table is printed to standard
    output.
    """
    sys.stdout.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _package(point: Carried) -> str:
    try:
        version = point.dist.version if point.dist else None
    except Exception:  # a distribution without metadata
        version = None
    sound = isinstance(version, str) and version.isprintable() and len(version) < 100
    return f"{point.package} {version}" if sound else point.package


def _facts(backend: Any) -> dict[str, Any]:
    if backend is None:
        return {"level": None, "device": None, "arithmetic": [], "options": []}
    level = "last resort" if backend.last_resort else "loop" if backend.target else "graph"
    device = "any" if backend.device == "*" else backend.device
    facts = list(backend.arithmetic.sentences())
    options = [_option(backend.name, o) for o in backend.options]
    return {"level": level, "device": device, "arithmetic": facts, "options": options}


def _option(owner: str, option: Option) -> dict[str, Any]:
    return {
        "name": f"{owner}.{option.name}",
        "type": option.type.__name__,
        "default": option.default,
        "choices": list(option.choices),
        "sentence": option.sentence,
    }


def _option_text(option: Mapping[str, Any]) -> str:
    """A line about an option: its name, what it may be, its default, and what it does."""
    values = " | ".join(map(repr, option["choices"])) if option["choices"] else option["type"]
    default = "" if option["default"] is None else f", default {option['default']!r}"
    return f"{option['name']} ({values}{default}): {option['sentence']}"


@app.command()
def explain(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:FACTORY...",
            help="Callables without arguments that "
            "return a function or module, a tuple of arguments and, if need be, a "
            "dict of others.",
        ),
    ],
    backends: Annotated[str, typer.Option(help="Names in order of preference, with commas between.")] = "",
    strict: Annotated[bool, typer.Option(help="Make fallbacks errors.")] = False,
    dynamic: Annotated[bool | None, typer.Option(help="Compile for sizes that change.")] = None,
    placement: Annotated[str, typer.Option(help=f"One of {', '.join(PLACEMENTS)}.")] = "auto",
    costs: Annotated[Path | None, typer.Option(help="Data sheets, as keel bench --calibrate writes them.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Place as if this backend or operator did not exist (cpp, softmax, cpp.softmax); repeatable."
        ),
    ] = None,
    assume: Annotated[
        list[str] | None, typer.Option(help="Place as if a backend took this operator (acme.softmax); repeatable.")
    ] = None,
    pin: Annotated[
        list[str] | None, typer.Option(help="Assign an operator to a backend (softmax=cpp); repeatable.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the explanation to this file as a web page.")] = None,
    json: AsJson = False,
) -> None:
    """Compile models and report which backend takes which calls, the refusals with reasons and lines of code, the cost
    by the data sheets, and what to implement next.
    """
    options: dict[str, Any] = {
        "backends": names_in(backends),
        "strict": strict,
        "dynamic": dynamic,
        "placement": placement,
        "costs": costs,
        "without": without or (),
        "assume": assume or (),
        "pins": {operator: who for operator, _, who in (p.partition("=") for p in pin or ())},
    }
    explanations: dict[str, Explanation] = {}
    for name in what:
        fn, args, kwargs = called_model(name)
        explanations[name] = explained(fn, *args, **options, **kwargs)
    if html is not None:
        from keel.explain_page import page

        html.write_text(page(explanations), encoding="utf-8")
    _print_explanations(explanations, json)


def _print_explanations(explanations: Mapping[str, Explanation], json: bool) -> None:
    steps = merged(step for one in explanations.values() for step in one.steps)
    if json:
        models = {name: one.as_json() for name, one in explanations.items()}
        several = {"models": models, "steps": [asdict(s) for s in steps]}
        print(js.dumps(several if len(explanations) > 1 else next(iter(models.values())), indent=1))
        return
    for name, one in explanations.items():
        Console(highlight=False).print(*([f"[bold]{escape(name)}[/]"] if len(explanations) > 1 else []), one, sep="\n")
    if len(explanations) > 1 and steps:
        Console(highlight=False).print(_steps(steps))


def _steps(steps: Sequence[Step]) -> Table:
    """What to implement next over all models."""
    table = _table("next", "operator", "calls", "saves")
    for s in steps[:20]:
        table.add_row(s.backend, escape(s.operator), str(s.calls), duration(s.saved))
    return table


@app.command()
def opt(
    file: Annotated[Path, typer.Argument(help="A kernel as text, as KEEL_DUMP writes it.")],
    backend: Annotated[str, typer.Option(help="A loop-level backend.")] = "",
    from_: Annotated[str, typer.Option("--from", help="The stage that the file holds: loops.")] = "loops",
    to: Annotated[
        str,
        typer.Option(
            help="loops: in the backend's scalar ops. source: as it renders it. interp: run on "
            "made-up inputs by the interpreter and, if one is given, by the backend."
        ),
    ] = "",
    size: Annotated[list[str] | None, typer.Option(help="s0=8: the value of a size, for interp; repeatable.")] = None,
) -> None:
    """Read a kernel from its text and print, render or run it."""
    _one_of("--from", from_, ("loops",))
    to = to or ("source" if backend else "loops")
    _one_of("--to", to, ("loops", "source", "interp"))
    try:
        kernel = kernels.read_kernel(text_of(file))
    except Malformed as e:
        raise bad_file(file, e, what="It is not the text of a kernel.") from e
    owner = find(backend) if backend else None
    if to == "interp":
        _show_trial(kernels.trial(kernel, _sizes(size or []), owner))
    elif owner is not None:
        text = kernels.source(kernel, owner) if to == "source" else str(kernels.for_target(kernel, owner))
        print(text.rstrip("\n"))
    elif to == "loops":
        print(str(kernel).rstrip("\n"))
    else:
        raise KeelError("bad-option", "source is the source of a backend.", do="Name one, for instance --backend cpp.")


def _sizes(words: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for text in words:
        name, _, value = text.partition("=")
        if not name.isidentifier() or not value.isdecimal():
            raise KeelError("bad-option", f"--size {text!r} is not a size.", do="Write it as --size s0=8.")
        sizes[name] = int(value)
    return sizes


def _show_trial(trials: Sequence[kernels.Trial]) -> None:
    table = _table("buffer", "type", "first values by the interpreter", "by the backend", "largest difference")
    for t in trials:
        kind = f"{str(t.interpreted.dtype).removeprefix('torch.')}[{t.interpreted.numel()}]"
        table.add_row(
            t.buffer,
            kind,
            _first(t.interpreted),
            "" if t.built is None else _first(t.built),
            "" if t.difference is None else f"{t.difference:.3g}",
        )
    Console(highlight=False).print(table)


def _first(tensor: Any) -> str:
    return " ".join(f"{v:.6g}" for v in tensor[:4].double().tolist())


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="keel_acme, or acme: the backend's name.")],
    level: Annotated[str, typer.Option(help=f"{' or '.join(LEVELS)}: what your compiler takes.")] = "graph",
    dir: Annotated[Path | None, typer.Option(help="Where to write it; by default ./keel_NAME.")] = None,
) -> None:
    """Render a plugin package that installs and passes its own tests."""
    folder = render(name, level, dir)
    print(f"{folder} is a package. Next: pip install -e {folder} && pytest {folder}")


def _one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise KeelError("bad-option", f"{option} {value!r} is not known.", {"known": ", ".join(known)})


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


app.command()(ops)
app.command()(compare)
app.command()(minify)
app.command()(profile)
app.command()(package)
app.command()(inspect)
