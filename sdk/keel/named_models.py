"""Models and backends that a command line names. A model is MODULE:FACTORY, or a file of an exported program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from keel.errors import KeelError, first_line, message_of
from keel.plugin import Backend


def names_in(backends: str) -> list[str] | None:
    """The names of backends in an option, in which commas are between them; None if it has none."""
    return [name.strip() for name in backends.split(",") if name.strip()] or None


def backend_named(text: str) -> str | Backend:
    """The backend of a text, or the text itself if it names an installed one. Raises KeelError[unknown-backend]."""
    module, _, path = text.partition(":")
    if not path:
        return text
    try:
        value: Any = import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
    except (ImportError, AttributeError) as e:
        raise KeelError("unknown-backend", f"There is no backend {text!r}.", {module: message_of(e)}) from e
    if not isinstance(value, Backend):
        raise KeelError("unknown-backend", f"{text!r} is a {type(value).__name__}, not a Backend.")
    return value


def made_by(what: str, usage: str) -> Any:
    """What the factory MODULE:FACTORY returns. Modules of the current folder count. Raises KeelError[bad-option]."""
    module, _, name = what.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as raised:
        raise KeelError(
            "bad-option", f"{what!r} cannot be loaded.", {what: f"{type(raised).__name__}: {raised}"}, do=usage
        ) from raised
    finally:
        sys.path.pop(0)


_USAGE = (
    "Write MODULE:FACTORY, where the factory returns (module, (argument, ...)), and dicts of other arguments and of "
    "dynamic shapes if need be."
)


def program_of(what: str) -> ExportedProgram:
    """The exported program in a file of ``torch.export.save``, or of the model that a factory returns. Raises
    KeelError[bad-option].
    """
    if what.endswith(".pt2"):
        try:
            return torch.export.load(what)
        except Exception as raised:  # PyTorch raises anything for a damaged file
            why = {"torch.export": first_line(raised)}
            raise KeelError("bad-option", f"{what} cannot be loaded.", why) from raised
    match made_by(what, _USAGE):
        case ExportedProgram() as program:
            return program
        case (torch.nn.Module() as model, tuple() as args):
            return torch.export.export(model, args)
        case (torch.nn.Module() as model, tuple() as args, dict() as kwargs):
            return torch.export.export(model, args, kwargs)
        case (torch.nn.Module() as model, tuple() as args, dict() as kwargs, dynamic):
            return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic)
    raise KeelError("bad-option", f"{what!r} returned something else.", do=_USAGE)


def called_model(what: str) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
    """The function or module that a factory returns, with its arguments. Raises KeelError[bad-option]."""
    usage = "Write MODULE:FACTORY, where the factory returns (function, (argument, ...)) or that and a dict."
    made = made_by(what, usage)
    match made:
        case (fn, tuple() | list() as args) if callable(fn):
            return fn, args, {}
        case (fn, tuple() | list() as args, dict() as kwargs) if callable(fn):
            return fn, args, kwargs
    raise KeelError("bad-option", f"{what!r} returned {type(made).__name__}.", do=usage)
