"""The figures of the house, which ``make house`` prints: each is a ceiling that may only fall."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import keel

from .source_files import LEXEME, OUTSIDE, ROOT, code, imports, module_of, nodes, short

STATEMENTS, LINES, RUN = 60, 500, 12
"""Limits: lines of a function, lines of a file, and equal lines of code in two places that count as a run."""
SHOWN = 80
"""The most places that are printed for a figure."""
Files = Mapping[str, Path]
"""Each module's file."""
Graph = Mapping[str, set[str]]

CEILINGS = {
    "modules in import circles": 0,
    "rooms of a package in import circles": 0,
    f"functions over {STATEMENTS} lines": 0,
    f"files over {LINES} lines": 0,
    "public names without a docstring": 0,
    f"runs of {RUN} lines that stand twice": 0,
    "base names of modules with several meanings": 0,
    "identifiers that say nothing of their values": 4,
}

SAME_PURPOSE = {
    "__main__": "Python runs a package by its module of this name",
    "verify": "each intermediate representation has a verifier",
    "opset": "keel.opset is the public face of keel.spec.opset",
    "cache": "keel_bench.cache damages and crowds what keel.cache keeps",
    "closure": "keel_bench.closure runs keel.closure on PyTorch's catalog and on models",
    "coverage": "keel_bench.coverage runs keel.coverage for a backend and reports the cells",
    "cli": "each command of keel has its options and its output in one module",
    "jobs": "each measurement has a type of job for its worker processes, and of what comes back",
    "worker": "each measurement has a function that a worker process runs on a job",
    "warm": "each measurement has a module that the server of its worker processes imports before it forks",
    "measure": "each measurement over the catalog runs one OpInfo in a process of its own",
    "bars": "each measurement over the catalog has criteria that its figures are held against",
    "compile_time": "the CPU seconds that compiling takes, for a first step and for each model of the zoo",
    "graph": "keel_conformance.oracles.graph bounds and judges the functional graphs that keel.graph reads",
    "unspecified": "keel_conformance.oracles.unspecified applies keel.spec.unspecified to results",
    "pointwise": "cases, oracle rules and mutants of the operators that compute element by element",
    "reductions": "lowering, cases and mutants of the operators that reduce dimensions",
    "data_movement": "lowering and mutants of the operators that move elements",
    "special": "declarations and oracle rules of special functions",
    "collectives": "declarations and contract programs of collectives",
    "assertions": "cases and contract programs of the operators that assert",
    "precision": "contract programs about digits that are easily lost, and the mutants that lose them",
    "rewrites": "contract programs about what compilers rewrite, and the mutants that rewrite it wrongly",
    "models": "real models that are built offline with random weights",
}
"""Base names of modules that stand in several rooms on purpose, and why."""
FAMILIES = ("keel.spec.ops", "keel.loops.lower", "keel_conformance.cases.domains")
"""A family of operators has a module of one name in each of these rooms."""
VAGUE = {"anew", "apart", "asked", "begun", "beside", "found", "given", "heard", "kept", "mine"}
VAGUE |= {"said", "seen", "taken", "told", "tried", "untold", "wanted", "whole"}
"""Words that say how a value came about and not what it is."""


def modules() -> Files:
    return {module_of(path): path for path in code()}


# -- imports -------------------------------------------------------------------------------------------------


def graph(files: Files) -> Graph:
    """Returns the modules that each module imports, also inside functions. A package imports the modules that its
    ``__init__`` imports.
    """
    found = defaultdict[str, set[str]](set)
    for module, path in files.items():
        for _, origin, name in imports(path):
            reached = next((m for m in (f"{origin}.{name}", origin) if m in files), module)
            found[module] |= {reached} - {module}
    return found


def rooms(modules: Graph, root: str) -> Graph:
    """The same between the rooms of a package, which are the packages and modules directly in it."""
    found = defaultdict[str, set[str]](set)
    for module, reached in modules.items():
        inside = [name.split(".")[1] for name in (module, *sorted(reached)) if name.startswith(f"{root}.")]
        if module.startswith(f"{root}."):
            found[inside[0]] |= {*inside[1:]} - {inside[0]}
    return found


def in_circles(graph: Graph) -> list[str]:
    """The nodes from which a path leads back to themselves."""
    return sorted(node for node in graph if node in reachable(graph, graph[node]))


def reachable(graph: Graph, start: Iterable[str]) -> set[str]:
    found, left = set[str](), list(start)
    while left:
        if (node := left.pop()) not in found:
            found.add(node)
            left += graph.get(node, ())
    return found


# -- what files hold -----------------------------------------------------------------------------------------


def long_functions(path: Path) -> list[str]:
    functions = (n for n in nodes(path) if isinstance(n, ast.FunctionDef))
    return [
        f"{path.name}:{f.lineno} {f.name}"
        for f in functions
        if f.end_lineno is not None and f.end_lineno - f.lineno >= STATEMENTS
    ]


@cache
def code_lines(path: Path) -> list[tuple[int, str]]:
    """The lines that hold code, with their numbers: comments, docstrings, blank lines and imports left out."""
    text = path.read_text()
    # A comment leaves nothing, and the lines of a string are all code, those that look like comments too.
    bare = LEXEME.sub(lambda lexeme: "" if lexeme[0].startswith("#") else re.sub("(?m)^|$", "_", lexeme[0]), text)
    kept = {number for number, line in enumerate(bare.split("\n"), 1) if line.strip()}
    for node in nodes(path):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                kept -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number in kept]


def twice(paths: Iterable[Path]) -> list[str]:
    """Where runs begin whose lines stand elsewhere, too; one that is longer counts once."""
    places = defaultdict[tuple[str, ...], list[tuple[Path, int, int]]](list)
    for path in paths:
        lines = code_lines(path)
        for i in range(len(lines) - RUN + 1):
            places[tuple(text for _, text in lines[i : i + RUN])].append((path, i, lines[i][0]))
    starts = {(path, i): line for found in places.values() if len(found) > 1 for path, i, line in found}
    return [f"{path.name}:{line}" for (path, i), line in starts.items() if (path, i - 1) not in starts]


def undocumented() -> list[str]:
    """Public functions and classes that say nothing of themselves."""
    found = [
        (room, name, getattr(import_module(room), name))
        for room in ("keel", *(f"keel.{r}" for r in keel._ROOMS))
        for name in import_module(room).__all__
    ]
    return sorted(
        f"{room}.{name}"
        for room, name, value in found
        if getattr(value, "__module__", "").startswith("keel")
        and callable(value)
        and (not (value.__doc__ or "").strip() or value.__doc__.startswith(f"{name}("))
    )


# -- names -------------------------------------------------------------------------------------------------


def collisions(modules: Iterable[str]) -> list[str]:
    """Base names that modules of several rooms have, unless they have one purpose or are one family of operators."""
    rooms = defaultdict[str, set[str]](set)
    for module in modules:
        room, _, base = module.rpartition(".")
        if room and base != room.rpartition(".")[2]:
            rooms[base].add("a family of operators" if room in FAMILIES else "a backend" if is_backend(room) else room)
    return sorted(
        f"{base}: {', '.join(sorted(where))}"
        for base, where in rooms.items()
        if len(where) > 1 and base not in SAME_PURPOSE
    )


def is_backend(package: str) -> bool:
    """Reference backends have the same file names for the same purposes."""
    return (ROOT / "reference_backends" / package).is_dir()


def vague_identifiers(path: Path) -> list[str]:
    """Where a function, class, parameter or variable has one of the ``VAGUE`` words as its whole name."""
    return [
        f"{path.name}:{line} {name}" for line, name in defined_names(nodes(path)) if name.strip("_").lower() in VAGUE
    ]


def defined_names(nodes: Iterable[ast.AST]) -> Iterable[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


# -- the figures ---------------------------------------------------------------------------------------------


def figures() -> dict[str, list[str]]:
    """The places that each figure counts."""
    files = modules()
    found = graph(files)
    return {
        "modules in import circles": in_circles(found),
        "rooms of a package in import circles": [r for name in OUTSIDE for r in in_circles(rooms(found, name))],
        f"functions over {STATEMENTS} lines": [f for path in files.values() for f in long_functions(path)],
        f"files over {LINES} lines": [short(p) for p in files.values() if len(p.read_text().splitlines()) > LINES],
        "public names without a docstring": undocumented(),
        f"runs of {RUN} lines that stand twice": twice(files.values()),
        "base names of modules with several meanings": collisions(files),
        "identifiers that say nothing of their values": [v for p in files.values() for v in vague_identifiers(p)],
    }


def lines_of_packages() -> dict[str, int]:
    found = defaultdict[str, int](int)
    for module, path in modules().items():
        found[module.partition(".")[0]] += len(code_lines(path))
    return dict(found)


def test_figures_only_fall() -> None:
    found = figures()
    for figure, places in found.items():
        print(f"{len(places):6}  {figure}", *([f"({', '.join(places[:SHOWN])})"] if places else []))
    for package, lines in lines_of_packages().items():
        print(f"{lines:6}  lines of code in {package}")
    assert found.keys() == CEILINGS.keys()
    risen = {figure: places for figure, places in found.items() if len(places) > CEILINGS[figure]}
    assert not risen


# -- what counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "circles"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, ["a", "b"]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, ["a", "b", "c"]),
    ],
)
def test_circles_are_recognized(found: Graph, circles: list[str]) -> None:
    assert in_circles(found) == circles


def test_rooms_import_each_other_where_their_modules_do() -> None:
    found = rooms({"p.a.one": {"p.b.two", "q.c"}, "p.b.two": {"p.b.three"}, "p.b.three": {"p.a.four"}}, "p")
    assert found == {"a": {"b"}, "b": {"a"}} and in_circles(found) == ["a", "b"]


BODY = "".join(f"    x{i} = {i}\n" for i in range(RUN))


@pytest.mark.parametrize(
    ("count", "figure", "texts"),
    [
        (0, long_functions, ["def f():\n" + "    pass\n" * (STATEMENTS - 1)]),
        (1, long_functions, ["def f():\n" + "    pass\n" * STATEMENTS]),
        (2, twice, ["def f():\n" + BODY, "def g():\n\n    # other\n" + BODY]),
        (2, twice, ["def f():\n" + BODY + "    y = 1\n", "def g():\n" + BODY + "    y = 1\n"]),
        (0, twice, ["def f():\n" + BODY, "def g():\n" + BODY.replace("x3", "y3")]),
        (0, twice, ["from a import (\n" + "    b,\n" * RUN + ")\n"] * 2),
        (2, vague_identifiers, ["def _apart(mine: int) -> int:\n    return mine\n"]),
        (3, vague_identifiers, ["found, rest = f(told=1)\nfor kept in rest: pass\nclass Found: found_in = 1\n"]),
        (1, vague_identifiers, ["match x:\n    case [y, *found]: pass\n    case A(found=z): pass\n"]),
    ],
)
def test_what_counts(count: int, figure: Callable[..., list[str]], texts: list[str], tmp_path: Path) -> None:
    paths = [tmp_path / f"m{i}.py" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    assert len(figure(paths) if figure is twice else figure(paths[0])) == count


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["keel.a.plan", "keel.b.plan", "keel.b.order"], ["plan: keel.a, keel.b"]),
        (["keel.a.verify", "keel.b.verify"], []),
        (["keel.spec.ops.fft", "keel.loops.lower.fft"], []),
        (["keel.spec.ops.fft", "keel.a.fft"], ["fft: a family of operators, keel.a"]),
        (["keel_cpp.build", "keel_triton.build"], []),
        (["keel_cpp.build", "keel.build"], ["build: a backend, keel"]),
    ],
)
def test_which_base_names_collide(names: list[str], found: list[str]) -> None:
    assert collisions(names) == found


def test_code_lines_leave_out_what_is_no_code(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        '"""Doc\n\nstring."""\nimport a\n\n# why\nx = """text\nin it"""\ndef f():\n    "Says."\n    return x\n'
    )
    assert [number for number, _ in code_lines(path)] == [7, 8, 9, 11]
