"""The command for models that are wrong: ``keel compare``."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from keel.comparison import EAGER
from keel.comparison import compare as compared
from keel.named_models import backend_named, called_model, names_in

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
    names = names_in(backends)
    chosen = None if names is None else [backend_named(name) for name in names]
    comparison = compared(
        fn, *args, backends=chosen, against=against, steps=steps, inside=inside, dynamic=dynamic, **kwargs
    )
    if html is not None:
        from keel.comparison_page import page

        html.write_text(page({what: comparison}), encoding="utf-8")
    if json:
        print(js.dumps(comparison.as_json(), indent=1))
    else:
        Console(highlight=False).print(comparison)
    raise typer.Exit(1 if comparison.wrong else 0)
