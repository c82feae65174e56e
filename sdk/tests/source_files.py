"""The Python files of this repository, and what they import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEEL = ROOT / "sdk" / "keel"

EXAMPLES = ROOT / "examples" / "privateuse1"
# Packages that a third party could have written, or that stand beside Keel: none has a door that others lack.
OUTSIDE = {
    name: root / name
    for root in (
        ROOT / "reference_backends",
        ROOT / "conformance",
        ROOT / "templates",
        ROOT / "examples" / "privateuse1",
    )
    for name in sorted(p.name for p in root.glob("keel_*"))
}
LEXEME = re.compile(
    r"""\#[^\n]*
    | "{3}(?:[^\\]|\\.)*?"{3} | '{3}(?:[^\\]|\\.)*?'{3}
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'""",
    re.DOTALL | re.VERBOSE,
)
"""A comment of Python or a string, in which ``#`` begins no comment. ``tokenize`` takes twenty times as long."""
SCAFFOLD = ROOT / "templates" / "keel_templates" / "scaffold"


def sources(*folders: Path) -> list[Path]:
    """Python files under ``folders``, tests and scaffolds (which are templates) left out."""
    found = [p for folder in folders for p in folder.rglob("*.py")]
    return sorted(p for p in found if "tests" not in p.parts and SCAFFOLD not in p.parents)


def code() -> list[Path]:
    return sources(KEEL, *OUTSIDE.values())


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file, which nobody may change: many tests look at each."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree."""
    return tuple(walk(tree(path)))


def walk(node: ast.AST) -> list[ast.AST]:
    """What ``ast.walk`` finds, in the same order and in less time."""
    found = [node]
    for parent in found:
        for field in parent._fields:
            match getattr(parent, field, None):
                case ast.AST() as child:
                    found.append(child)
                case list() as children:
                    found += [child for child in children if isinstance(child, ast.AST)]
    return found


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """``sdk/keel/loops/ir.py`` is ``keel.loops.ir``; a package is the name of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[next(n for n, part in enumerate(parts) if part.startswith("keel")) :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[tuple[int, str, str], ...]:
    """Every import in the file, also those inside functions: (line, module in full, imported name or '')."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str, str]]:
    package = module_of(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    for node in nodes(path):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name, "") for alias in node.names)
            case ast.ImportFrom(module=module, level=level):
                base = package[: len(package) - level + 1] if level else []
                origin = ".".join([*base, *([module] if module else [])])
                yield from ((node.lineno, origin, alias.name) for alias in node.names)
