"""The user's modules that a node belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import fx

_LOCAL = re.compile(r"^[LG]\['(\w+)'\]")
_ITEM = re.compile(r"\['?([^\]']*)'?\]")
_ROOTS = ("self", "fn")
"""The names by which Dynamo knows a module that is compiled."""


def module_path(node: fx.Node) -> str:
    """The path of the innermost module whose ``forward`` made a node, such as ``encoder.layer.3.attention``: from the
    module that is compiled, or from a variable of a function that is compiled.  A backward node has the path of its
    forward call.  Empty if it is unknown, or the compiled module itself.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path = str([*stack.values()][-1][0])
    if (local := _LOCAL.match(path)) is not None:
        path = path[local.end() :] if local[1] in _ROOTS else local[1] + path[local.end() :]
    return _ITEM.sub(r".\1", path).lstrip(".")


def common_path(paths: Iterable[str]) -> str:
    """The path of the innermost module that contains all of these; empty ones, which are unknown, do not count."""
    known = [path.split(".") for path in paths if path]
    common: list[str] = []
    for names in zip(*known, strict=False):
        if len({*names}) > 1:
            break
        common.append(names[0])
    return ".".join(common)


def range_name(owner: str, paths: Iterable[str], what: str) -> str:
    """What profilers show while ``what``, which the backend ``owner`` compiled, runs for modules with these paths."""
    name = f"keel.{owner} {common_path(paths)}".rstrip() + f": {what}"
    return name.encode("utf-8", "replace").decode("utf-8")  # PyTorch takes no surrogates
