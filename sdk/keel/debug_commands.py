"""The commands for models that are wrong or slow: ``keel compare`` and ``keel profile``."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from keel.comparison import EAGER
from keel.comparison import compare as compared
from keel.errors import KeelError
from keel.named_models import backend_named, called_model, names_in
from keel.plugin import Backend
from keel.profile import profile as profiled
from keel.settings import PLACEMENTS

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FACTORY",
        help="A callable without arguments that returns a function or module, a tuple of arguments and, if need be, a "
        "dict of others.",
    ),
]
Backends = Annotated[str, typer.Option(help="Names, or MODULE:ATTRIBUTE, in order of preference, with commas between.")]
Html = Annotated[Path | None, typer.Option(help="Write a web page to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data instead of a table.")]


def compare(
    what: Model,
    backends: Backends = "",
    against: Annotated[str, typer.Option(help="eager, or a backend whose errors are shown next to these.")] = EAGER,
    steps: Annotated[int, typer.Option(min=1, help="How often to run the model. The worst of each value is kept.")] = 1,
    inside: Annotated[bool, typer.Option(help="Compile parts again with more outputs, to see values inside.")] = True,
    dynamic: Annotated[bool | None, typer.Option(help="Compile for sizes that change.")] = None,
    html: Html = None,
    json: AsJson = False,
) -> None:
    """Compare the values of a compiled model with float64, forward and backward, and name the first operator that is
    over its error budget. The exit status is 1 if there is one.
    """
    fn, args, kwargs = called_model(what)
    comparison = compared(
        fn, *args, backends=_chosen(backends), against=against, steps=steps, inside=inside, dynamic=dynamic, **kwargs
    )
    if html is not None:
        from keel.comparison_page import page

        html.write_text(page({what: comparison}), encoding="utf-8")
    if json:
        print(js.dumps(comparison.as_json(), indent=1))
    else:
        Console(highlight=False).print(comparison)
    raise typer.Exit(1 if comparison.wrong else 0)


def profile(
    what: Model,
    backends: Backends = "",
    placement: Annotated[str, typer.Option(help=f"One of {', '.join(PLACEMENTS)}.")] = "auto",
    costs: Annotated[Path | None, typer.Option(help="Data sheets, as keel bench --calibrate writes them.")] = None,
    dynamic: Annotated[bool | None, typer.Option(help="Compile for sizes that change.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="How many steps of each compiler to time.")] = 20,
    inference: Annotated[bool, typer.Option("--inference", help="Leave the backward pass out.")] = False,
    inductor: Annotated[bool, typer.Option(help="Time Inductor, too.")] = True,
    html: Html = None,
    json: Annotated[Path | None, typer.Option(help="Write data to this file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a trace to this file, which ui.perfetto.dev opens.")] = None,
) -> None:
    """Say where the time of a model's steps goes, next to eager PyTorch and Inductor, and what would help most."""
    for option, file in (("--html", html), ("--json", json), ("--trace", trace)):
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            why = "It is a folder." if file.is_dir() else "Its folder does not exist."
            raise KeelError("bad-option", f"{option} {str(file)!r} cannot be written.", {str(file): why})
    fn, args, kwargs = called_model(what)
    report = profiled(
        fn,
        *args,
        backends=_chosen(backends),
        placement=placement,
        costs=costs,
        dynamic=dynamic,
        steps=steps,
        inference=inference,
        inductor=inductor,
        trace=trace,
        **kwargs,
    )
    if html is not None:
        from keel.profile.profile_page import page

        html.write_text(page({what: report}), encoding="utf-8")
    if json is not None:
        json.write_text(js.dumps(report.as_json(), indent=1), encoding="utf-8")
    Console(highlight=False).print(report)


def _chosen(backends: str) -> list[Backend | str] | None:
    """The backends that an option names; None if it names none."""
    names = names_in(backends)
    return None if names is None else [backend_named(name) for name in names]
