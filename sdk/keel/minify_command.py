"""``keel minify``: the smallest program that fails as a model does, and the stage that is at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from keel.errors import KeelError
from keel.minify.failing_model import Reduction
from keel.minify.failing_model import minify as reduced
from keel.minify.failure import KINDS, Subject
from keel.minify.reduction_report import write
from keel.named_models import names_in


def minify(
    model: Annotated[
        str,
        typer.Argument(
            help="MODULE:FACTORY, where the factory returns (function, (argument, ...)); a script; or a folder that "
            "KEEL_REPRO wrote."
        ),
    ],
    backends: Annotated[str, typer.Option(help="Backends in order of preference, with commas between.")] = "",
    option: Annotated[list[str] | None, typer.Option(help="acme.level=3: an option of a backend; repeatable.")] = None,
    when: Annotated[str, typer.Option(help=f"Only this kind of failure: {', '.join(KINDS)}.")] = "",
    training: Annotated[bool, typer.Option(help="Run the backward pass too.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for the script, the report and the dumps.")] = Path("minified"),
    seconds: Annotated[float, typer.Option(min=1.0, help="The most seconds to look for something smaller.")] = 300.0,
) -> None:
    """Reduce a model that fails to a script of at most 40 lines, and say which stage is at fault."""
    if when and when not in KINDS:
        raise KeelError("bad-option", f"--when {when!r} is not known.", {"known": ", ".join(KINDS)})
    console = Console(stderr=True, highlight=False)
    names = names_in(backends)
    subject = None if names is None else Subject(tuple(names), _options(option or []))

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    reduction = reduced(model, subject, when=when, training=training, seconds=seconds, say=say)
    write(reduction, out)
    print(summary(reduction, out))


def _options(words: list[str]) -> tuple[tuple[str, object], ...]:
    """The options of backends, as numbers where they are numbers."""
    options = list[tuple[str, object]]()
    for text in words:
        name, sign, value = text.partition("=")
        if not sign or "." not in name:
            raise KeelError(
                "bad-option", f"--option {text!r} is not an option.", do="Write it as --option acme.level=3."
            )
        known = {"True": True, "False": False}
        options.append((name, int(value) if value.lstrip("-").isdecimal() else known.get(value, value)))
    return tuple(options)


def summary(reduction: Reduction, out: Path) -> str:
    """The result in a few lines."""
    lines = [
        f"{reduction.failure.kind}: {reduction.failure.sentence}",
        f"stage: {reduction.fault.stage or 'unknown'}. {reduction.fault.sentence}",
        f"calls: {reduction.program.size} of {reduction.before}, after {reduction.trials} trials in "
        f"{reduction.seconds:.0f} s",
        f"script: {out / 'failing.py'} exits with {1 if reduction.shown else 'something other than 1'}",
        f"report: {out / 'report.md'}",
    ]
    return "\n".join(lines)
