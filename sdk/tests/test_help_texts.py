"""Help texts of commands: rich takes ``[word]`` for markup, and prints nothing of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.errors import MarkupError
from rich.text import Text

from .source_files import code, nodes, short, tree


def is_printed(text: str) -> bool:
    """True if a help text is printed as it is written, but for brackets that are escaped."""
    try:
        made = Text.from_markup(text)
    except MarkupError:
        return False
    return made.plain == text.replace("\\[", "[") and not made.spans


def help_texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in ``help=`` and the docstrings of commands, by line. What is passed to ``escape`` is left out."""
    for node in nodes(path):
        match node:
            case ast.keyword(arg="help", value=value):
                yield from ((value.lineno, text) for text in texts(value))
            case ast.FunctionDef() if is_command(node) and (text := ast.get_docstring(node)):
                yield node.lineno, text


def is_command(function: ast.FunctionDef) -> bool:
    """True if the docstring of a function is help: it is decorated, annotates an option, or is named a command."""
    annotated = any("Annotated[" in ast.unparse(a.annotation) for a in function.args.args if a.annotation)
    return bool(function.decorator_list) or annotated or re.fullmatch("[a-z].*_command", function.name) is not None


def texts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.Call(func=ast.Name(id="escape")):
            pass
        case _:
            for inner in ast.iter_child_nodes(node):
                yield from texts(inner)


def has_commands(path: Path) -> bool:
    return any(isinstance(node, ast.Import) and node.names[0].name == "typer" for node in tree(path).body)


def test_help_is_printed_as_it_is_written() -> None:
    modules = [path for path in code() if has_commands(path)]
    lost = [
        f"{short(path)}:{line} {text[:60]!r}"
        for path in modules
        for line, text in help_texts(path)
        if not is_printed(text)
    ]
    assert len(modules) > 15
    assert not lost, "write escape(text) of rich.markup:\n" + "\n".join(lost)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("Option(help='pip install keel[fuzz]')", 1),
        ("Option(help=f'{x} of keel[fuzz]')", 1),
        ("Option(help='from ' + escape('keel[fuzz]'))", 0),
        ("Option(help='s0=8, a closing [/] too')", 1),
        ("Option(help='sizes [4, 2] and x[0]')", 0),
        ("@app.command()\ndef f():\n  'Shows [bold].'", 1),
        ("def f():\n  'Raises KeelError[bad].'", 0),
        ("Option(metavar='[x]')", 0),
    ],
)
def test_texts_that_are_not_printed_are_noticed(source: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "commands.py"
    path.write_text(source)
    assert sum(not is_printed(text) for _, text in help_texts(path)) == count
