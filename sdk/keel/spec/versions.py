"""Versions of the operator set, and how a saved graph goes from one to the next and back.

``docs/spec/stability.md`` says what each part of a version number promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from keel.errors import KeelError

Change = Literal["major", "minor", "patch"]
Data = dict[str, Any]
"""A part of a saved graph, as JSON has it."""


@dataclass(frozen=True, order=True)
class Version:
    """``major.minor``, or ``major.minor.patch`` where the patch is not 0."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")

    def after(self, change: Change) -> Version:
        """The first version that may hold such a change."""
        match change:
            case "major":
                return Version(self.major + 1, 0)
            case "minor":
                return Version(self.major, self.minor + 1)
            case "patch":
                return Version(self.major, self.minor, self.patch + 1)


def version(text: str) -> Version:
    """The version that a text names: ``1.0`` or ``1.0.2``.  Raises KeelError[bad-option]."""
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(p.isascii() and p.isdecimal() for p in parts):
        raise KeelError("bad-option", f"{text!r} is not a version of the opset.", do="Write it as 1.0 or 1.0.2.")
    return Version(*map(int, parts))


CURRENT = version("1.0")
"""What the declarations of this Keel are."""


Rewrite = Callable[[Data, Callable[[str], str]], Sequence[Data]]
"""Gives the nodes that stand for one; the last has its name and results.  Its second argument makes names that no other
node has.  Raises ValueError with a sentence if no nodes stand for it."""


@dataclass(frozen=True)
class Step:
    """From one version to the next: what is done to the nodes of each overload, on the way ``up`` and ``down``.

    Nodes of all other overloads stay as they are.
    """

    older: Version
    newer: Version
    up: Mapping[str, Rewrite] = field(default_factory=dict)
    down: Mapping[str, Rewrite] = field(default_factory=dict)


STEPS: tuple[Step, ...] = ()
"""All steps, oldest first; 1.0 is the first version."""


def convert(
    program: Data, target: Version, members: Callable[[Version], frozenset[str]], steps: Sequence[Step] = STEPS
) -> Data:
    """A saved program of another version of the opset.

    ``members`` gives the full names of all overloads of a version.  Raises KeelError[opset-version] for versions that
    no steps join, and for a node that has no form in the target.
    """
    source = version(program["opset"])
    for step, up in _path(source, target, steps):
        rewrites, known = (step.up, step.newer) if up else (step.down, step.older)
        program = {**program, "opset": str(known), "graph": _graph(program["graph"], rewrites, known)}
        if lost := sorted(overloads_of(program["graph"]) - members(known)):
            raise _no_form(known, dict.fromkeys(lost, f"It is not a member of opset {known}."))
    # A patch changes no graph.
    return {**program, "opset": str(target)}


def _path(source: Version, target: Version, steps: Sequence[Step]) -> list[tuple[Step, bool]]:
    """The steps between two versions, in the order they are taken, and whether each goes up."""
    low, high = sorted((_plain(source), _plain(target)))
    between = [s for s in sorted(steps, key=lambda s: s.older) if low <= s.older and s.newer <= high]
    stops = [low, *(s.newer for s in between)]
    if stops[-1] != high or any(s.older != stop for s, stop in zip(between, stops, strict=False)):
        versions = sorted({CURRENT, *(v for s in steps for v in (s.older, s.newer))})
        raise KeelError(
            "opset-version",
            f"Nothing leads from opset {source} to {target}.",
            {"keel": f"It knows the versions {', '.join(map(str, versions))}."},
            do="A newer Keel reads all that an older one wrote; see docs/errors/opset-version.md.",
        )
    up = source < target
    return [(s, up) for s in (between if up else reversed(between))]


def _plain(v: Version) -> Version:
    return Version(v.major, v.minor)


def _graph(graph: Data, rewrites: Mapping[str, Rewrite], known: Version) -> Data:
    names = {n["name"] for part in ("inputs", "constants", "nodes") for n in graph[part]}

    def fresh(stem: str) -> str:
        name = next(n for n in (f"{stem}_{i}" for i in range(len(names) + 1)) if n not in names)
        names.add(name)
        return name

    nodes: list[Data] = []
    for node in graph["nodes"]:
        rewrite = rewrites.get(node["op"])
        try:
            nodes += [node] if rewrite is None else rewrite(node, fresh)
        except ValueError as e:
            raise _no_form(known, {f"%{node['name']} = {node['op']}": str(e)}) from e
    inner = {name: _graph(g, rewrites, known) for name, g in graph["graphs"].items()}
    return {**graph, "nodes": nodes, "graphs": inner}


def _no_form(known: Version, reasons: Mapping[str, str]) -> KeelError:
    return KeelError(
        "opset-version",
        f"The graph has no form in opset {known}.",
        reasons,
        do="Save it for a newer version, or load it with a newer Keel.",
    )


def overloads_of(graph: Data) -> frozenset[str]:
    """The full names of all operators that a saved graph calls, its inner graphs included."""
    own: Iterable[str] = (n["op"] for n in graph["nodes"] if "args" in n or "given" in n)
    return frozenset(own).union(*(overloads_of(g) for g in graph["graphs"].values()))
