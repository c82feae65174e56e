"""Renders a plugin package: the templates of ``keel_templates``, one folder per level."""

from __future__ import annotations

import keyword
from importlib.metadata import distribution, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from keel.errors import KeelError

LEVELS = ("graph", "loop")


def new(name: str, level: str = "graph", folder: Path | None = None) -> Path:
    """Writes an installable plugin package whose backend is ``name``, into ``folder``; returns the folder.

    ``keel_acme``, ``keel-acme`` and ``acme`` all name the backend ``acme`` of package ``keel_acme``, whose folder is
    ``./keel_acme`` unless one is given. Raises KeelError[bad-option] if the name is invalid or one of Keel's own, or if
    the folder has files or cannot be written.
    """
    backend = name.replace("-", "_").removeprefix("keel_")
    if not backend.isidentifier() or not backend.isascii() or backend != backend.lower() or keyword.iskeyword(backend):
        raise KeelError(
            "bad-option",
            f"{name!r} cannot be the name of a backend.",
            do="Use small letters, digits and underscores, for instance keel_acme.",
        )
    if level not in LEVELS:
        raise KeelError(
            "bad-option",
            f"There is no level {level!r}.",
            {"levels": ", ".join(LEVELS)},
            do="graph: your compiler takes graphs. loop: your language has loops.",
        )
    names = {
        "name": backend,
        "package": f"keel_{backend}",
        "distribution": f"keel-{backend.replace('_', '-')}",
        "version": version("torch-keel"),
    }
    if names["package"] in _own():
        raise KeelError(
            "bad-option",
            f"{name!r} cannot be the name of a backend.",
            {names["package"]: "Keel has a package or a backend of that name."},
            do="Name it after your device, for instance keel_acme.",
        )
    target = folder or Path(names["package"])
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise KeelError("bad-option", f"{target} has files already.", do="Give another folder with --dir.")
        for path, text in rendered(level, names).items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    except OSError as e:
        raise KeelError(
            "bad-option",
            "The package cannot be written.",
            {str(e.filename or target): e.strerror or str(e)},
            do="Give another folder with --dir.",
        ) from e
    return target


def _own() -> frozenset[str]:
    """The packages that Keel installs, and the package names that belong to its backends."""
    entries = distribution("torch-keel").entry_points
    backends = {f"keel_{entry.name}" for entry in entries if entry.group == "keel.backends"}
    return frozenset(backends | {entry.module.partition(".")[0] for entry in entries} | {"keel_templates"})


def rendered(level: str, names: dict[str, str]) -> dict[str, str]:
    """The files of a package, by path.  A folder called ``package`` gets the package's name."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    texts = _texts(files("keel_templates") / "scaffold" / level)
    return {
        path.replace("package/", f"{names['package']}/").removesuffix(".jinja"): environment.from_string(text).render(
            names
        )
        for path, text in texts.items()
    }


def _texts(folder: Traversable, prefix: str = "") -> dict[str, str]:
    texts: dict[str, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            texts |= _texts(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".jinja"):
            texts[prefix + entry.name] = entry.read_text()
    return texts
