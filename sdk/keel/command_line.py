"""The commands of ``keel``, its own and those of other packages.

It loads the command that is asked for; help loads none, and so not PyTorch either.

A package adds a subcommand by an entry point of group ``keel.commands``, or of ``keel.spec_commands`` for one of
``keel spec``: a name, and a Typer app.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import typer

from keel.claims import claimed, claims_of, damaged, is_own
from keel.command_help import summary
from keel.entry_points import Carried, unreadable
from keel.errors import KeelError, message_of
from keel.extras import require

GROUP, SPEC_GROUP = "keel.commands", "keel.spec_commands"
COMMANDS: Mapping[str, str] = {
    "backends": "List installed backends: which can be used here, and what is wrong with the others.",
    "explain": "Compile models and report which backend takes which calls, the refusals with reasons and lines of "
    "code, the cost by the data sheets, and what to implement next.",
    "compare": "Compare the values of a compiled model with float64, forward and backward, and name the first operator "
    "that is over its error budget. The exit status is 1 if there is one.",
    "opt": "Read a kernel from its text and print, render or run it.",
    "minify": "Reduce a model that fails to a script of at most 40 lines, and say which stage is at fault.",
    "profile": "Say where the time of a model's steps goes, next to eager PyTorch and Inductor, and what would help "
    "most.",
    "package": "Compile a model and write it to one file, which Python and C++ programs load.",
    "inspect": "Show what a package is, who made it and what it needs. Nothing in it is run.",
    "new": "Render a plugin package that installs and passes its own tests.",
    "ops": "Count the operators of the opset by family, list a family, or show an operator.",
    "spec": "The operator set: its lock, its versions, its pages.",
}
"""Keel's own commands, as help lists them."""


def run(argv: Sequence[str]) -> int:
    """Runs the command in ``argv``; returns the exit status."""
    try:
        command = typer.main.get_command(_app(argv))
        status = command.main(list(argv), prog_name="keel", standalone_mode=False)
    except KeelError as error:
        print(error, file=sys.stderr)
        return 1
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:
        if not hasattr(error, "show"):  # a usage error prints itself
            raise
        error.show()
        return int(getattr(error, "exit_code", 2))
    return status if isinstance(status, int) else 0


def _app(argv: Sequence[str]) -> typer.Typer:
    group = _first_word(argv)
    if group == "spec":
        spec = _own("keel.spec_commands")
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.add_typer(_with_mounted(spec, SPEC_GROUP, _first_word(argv[argv.index("spec") + 1 :])), name="spec")
        return app
    if group in COMMANDS:
        return _with_mounted(_own("keel.commands"), GROUP, group)
    return _with_mounted(_listing(), GROUP, group)


def _own(module: str) -> typer.Typer:
    """The commands of one of Keel's modules. Raises KeelError[broken-plugin] if PyTorch cannot be imported because of
    damaged packages.
    """
    try:
        app: typer.Typer = import_module(module).app
    except Exception as raised:
        if not (faults := unreadable()):
            raise
        raise KeelError(
            "broken-plugin",
            "PyTorch cannot be imported. It asks for the entry points of all packages, and some are damaged.",
            {
                "PyTorch": f"{type(raised).__name__}: {message_of(raised)}",
                **{fault.package: " ".join(fault.sentences) for fault in faults},
            },
            do=f"Install {faults[0].package} again, or uninstall it.",
        ) from raised
    return app


def _first_word(argv: Sequence[str]) -> str | None:
    """The command's name; None if help is asked for."""
    return next((a for a in argv if not a.startswith("-")), None)


def _listing() -> typer.Typer:
    """An app that lists Keel's own commands with their help texts."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Put a PyTorch 2 backend under any accelerator.",
    )
    for name, sentence in COMMANDS.items():
        app.command(name, help=sentence)(_listed)
    return app


def _listed() -> None:
    raise AssertionError("this command is listed in help and never run")


def _with_mounted(own: typer.Typer, group: str, first_word: str | None) -> typer.Typer:
    """The app with subcommands of other packages: the one that is asked for, or the names of all for help. A subcommand
    whose name is taken is reported in one line. A subcommand that cannot be loaded is an error when it is asked for.
    """
    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=own.info.help)
    app.add_typer(own)
    listed = typer.Typer()
    app.add_typer(listed)
    own_names = {command.name or getattr(command.callback, "__name__", "") for command in own.registered_commands}
    claims = claims_of(group)
    for error in damaged(group).values() if first_word not in {*own_names, *claims} else ():
        print(error, file=sys.stderr)
    for name, points in sorted(claims.items()):
        if first_word not in (None, name):
            continue
        if name in own_names:
            print(
                KeelError(
                    "broken-plugin",
                    f"command {name!r} of {points[0].package} cannot be used: Keel has one of that name.",
                    do="Uninstall the package, or ignore this.",
                ),
                file=sys.stderr,
            )
        elif first_word is None:
            from rich.markup import escape  # rich is loaded for help alone

            sentence = summary(points[0]) or f"A command of {points[0].package}; its --help says more."
            listed.command(name, help=escape(sentence))(_listed)
        else:
            app.add_typer(_command(name, points[0]), name=name)
        for other in points[1:]:
            print(claimed(name, points[0], other, "command"), file=sys.stderr)
    return app


def _command(name: str, point: Carried) -> typer.Typer:
    """Raises KeelError[broken-plugin], or KeelError[missing-extra] for a command of Keel's other packages."""
    if is_own(point):
        require("conform", f"keel {name}")
    from keel.discovery import loaded, try_imports
    from keel.quarantine import Report

    [report] = [Report()] if is_own(point) else try_imports([point])
    command, _ = loaded("command", name, point, report)
    if not isinstance(command, typer.Typer):
        raise KeelError(
            "broken-plugin",
            f"command {name!r} cannot be used: {point.value} is of type {type(command).__name__}, not a Typer app.",
            do=f"Report it to {point.package}.",
        )
    return command
