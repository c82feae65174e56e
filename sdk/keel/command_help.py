"""The help text of a command of another package, read from its source without importing the package."""

from __future__ import annotations

import ast
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path


def summary(point: EntryPoint) -> str | None:
    """The first paragraph of the docstring of the command's callback, in one line.

    The callback is the function that the entry point's app decorates, as in ``@app.callback()`` or ``@app.command()``.
    None if the source is not found or has no such function.
    """
    try:
        attribute, tree = point.attr, ast.parse(_source(point.module).read_bytes())
    except Exception:  # help must work even if the package is broken
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(_is_of(attribute, d) for d in node.decorator_list):
            paragraph = (ast.get_docstring(node) or "").split("\n\n")[0]
            return " ".join(paragraph.split()) or None
    return None


def _source(module: str) -> Path:
    """The file of a module, found without importing the packages that it is in.  Raises ImportError."""
    root, *inner = module.split(".")
    spec = find_spec(root)
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            break
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    if spec is None or spec.name != module or spec.origin is None:
        raise ImportError(module)
    return Path(spec.origin)


def _is_of(app: str, decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="callback" | "command")):
            return name == app
    return False
