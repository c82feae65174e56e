"""The only module that generates Python source text and runs it.

Text consists of names and small integers only. Each name is made by a ``Namespace``: ASCII letters, digits and
underscores, not a keyword, without two leading underscores. Everything else (strings, floats, dtypes, functions,
tensors) is an object bound to such a name. So names from a graph or a saved file are never parsed as Python.
``Expression`` is the type of text that was made here. All functions that write text require it and raise TypeError for
a plain string.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from keel.torch_adapter import Range, is_profiling

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_OPERATORS = frozenset(("+", "-", "*", "//", "%", "**", "or", "and"))
CHUNK = 2048
"""How many values a chunk of CPython's frame stack holds (3.11 to 3.13: 16 KiB)."""


class Expression(str):
    """The text of an expression that this module wrote."""

    __slots__ = ()


class Name(Expression):
    """A variable, or the name of an object, that a namespace made."""

    __slots__ = ()


def is_name(text: str) -> bool:
    """True if ``text`` may be used as a name in source: ASCII, not a keyword and not private. Python's normalization
    could change a name that is not ASCII.
    """
    return bool(_WORD.fullmatch(text)) and not keyword.iskeyword(text) and not keyword.issoftkeyword(text)


class Namespace:
    """The names that a function may use: its variables, and objects that live as long as the function."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}  # keys are plain strings, which CPython looks up faster
        self._named: dict[int, Name] = {}  # by the object's id; ``objects`` keeps it alive
        self._variables: dict[Hashable, Name] = {}
        self._taken = {"Exception"}  # the only builtin that the text uses

    def object(self, value: Any, stem: str = "object") -> Name:
        """The name of an object: always the same one for the same object."""
        if (known := self._named.get(id(value))) is None:
            known = self._named[id(value)] = self._fresh(stem, numbered=True)
            self.objects[str(known)] = value
        return known

    def variable(self, key: Hashable, stem: str) -> Name:
        """The local variable for ``key``: ``stem`` itself, if that is a name and is free, else one like it."""
        if (known := self._variables.get(key)) is None:
            known = self._variables[key] = self._fresh(stem)
        return known

    def shared(self, key: Hashable, stem: str, value: Any) -> Name:
        """The variable for ``key``, bound once for all calls instead of in each."""
        name = self.variable(key, stem)
        self.objects[str(name)] = value
        return name

    def _fresh(self, stem: str, numbered: bool = False) -> Name:
        stem = stem if is_name(stem) else "x"
        name = f"{stem}_{len(self._taken)}" if numbered or stem in self._taken else stem
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return Name(name)


# -- expressions --------------------------------------------------------------------------------------


def literal(value: int | bool | None) -> Expression:
    """An integer, a truth value or None."""
    if value is not None and type(value) not in (int, bool):
        raise TypeError(f"{value!r} is bound as an object, not written as text.")
    return Expression(repr(value))


def call(
    function: Expression,
    args: Iterable[Expression] = (),
    kwargs: Mapping[str, Expression] | None = None,
    space: Namespace | None = None,
) -> Expression:
    """A call. A keyword argument whose name is not a valid name (``from``) is passed in a dict that is an object of
    ``space``.
    """
    arguments: list[str] = [*map(_made, args)]
    for key, value in (kwargs or {}).items():
        if is_name(key):
            arguments.append(f"{key}={_made(value)}")
        elif space is None:
            raise ValueError(f"{key!r} is not the name of an argument.")
        else:
            arguments.append(f"**{{{space.object(key, 'keyword')}: {_made(value)}}}")
    return Expression(f"{_made(function)}({', '.join(arguments)})")


def method(value: Expression, name: str, *args: Expression) -> Expression:
    """A call of a method."""
    if not is_name(name):
        raise ValueError(f"{name!r} is not the name of a method.")
    return Expression(f"{_made(value)}.{name}({', '.join(map(_made, args))})")


def item(value: Expression, index: int) -> Expression:
    """``value[index]``."""
    return Expression(f"{_made(value)}[{literal(index)}]")


def tuple_of(values: Iterable[Expression]) -> Expression:
    """A tuple."""
    return Expression("(" + "".join(f"{_made(v)}, " for v in values) + ")")


def list_of(values: Iterable[Expression]) -> Expression:
    """A list."""
    return Expression(f"[{', '.join(map(_made, values))}]")


def infix(operator: str, *values: Expression) -> Expression:
    """``a + b + …`` in parentheses, for an operator of arithmetic, ``or`` or ``and``."""
    if operator not in _OPERATORS:
        raise ValueError(f"{operator!r} is not a known operator.")
    return Expression(f"({f' {operator} '.join(map(_made, values))})")


_ARITHMETIC = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def arithmetic(text: str, names: Mapping[str, Name]) -> Expression:
    """Turns ``text`` of another printer into an expression: it is parsed, checked, and printed again with ``names`` in
    place of its identifiers. It may contain numbers, arithmetic, comparisons, conditions, and calls and public
    attributes of these identifiers. Raises ValueError for anything else.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as raised:
        raise ValueError(f"{text!r} is not arithmetic.") from raised
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) if word in names:
                node.id = _made(names[word])
            case ast.Constant(value=value) if type(value) in (int, float, bool):
                pass
            case ast.Call(func=ast.Name() | ast.Attribute(), keywords=[]):
                pass
            case ast.Attribute(value=ast.Name(), attr=attr) if is_name(attr):
                pass
            case _ if isinstance(node, _ARITHMETIC):
                pass
            case _:
                raise ValueError(f"{text!r} is not arithmetic: it holds {type(node).__name__}.")
    return Expression(f"({ast.unparse(tree)})")


def _made(text: Expression) -> Expression:
    if not isinstance(text, Expression):
        raise TypeError(f"{text!r} was not made here, so it does not become source.")
    return text


# -- functions ----------------------------------------------------------------------------------------


class Function:
    """A function under construction, line by line. ``number`` is the number of the last line, from 1."""

    def __init__(self, space: Namespace, parameters: Sequence[Name], name: str = "run"):
        self.space, self.name = space, space.variable(("function", name), name)
        self._indent = "    "
        self._traced: Name | None = None
        self._ranges: dict[int, Expression | None] = {}  # of the traced form, by line; None for a line that it skips
        self._lines = [f"def {self.name}({', '.join(map(_made, parameters))}):"]

    @property
    def number(self) -> int:
        return len(self._lines)

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    def do(self, value: Expression) -> None:
        """Writes ``value`` as a statement, for its effect."""
        self._line(_made(value))

    def assign(self, target: Name, value: Expression) -> None:
        self._line(f"{_made(target)} = {_made(value)}")

    def unpack(self, targets: Sequence[Name], value: Expression) -> None:
        """Assigns the elements of ``value`` to the targets; their numbers must be equal."""
        left = "".join(f"{_made(t)}, " for t in targets).rstrip() or "()"
        self._line(f"{left} = {_made(value)}")

    def delete(self, names: Sequence[Name]) -> None:
        if names:
            self._line(f"del {', '.join(map(_made, names))}")

    def raise_if(self, condition: Expression, error: Expression) -> None:
        self._line(f"if {_made(condition)}:")
        self._line(f"    raise {_made(error)}")

    def raise_unless(self, condition: Expression, error: Expression) -> None:
        self._line(f"if not {_made(condition)}:")
        self._line(f"    raise {_made(error)}")

    def give(self, value: Expression) -> None:
        """Returns ``value``."""
        self._line(f"return {_made(value)}")

    def show_ranges(self, args: Name) -> None:
        """Has the function run its traced form while a profiler is active: the same lines under the same numbers, some
        of them in named ranges. ``args`` is the function's parameter.
        """
        self._traced = self.space.variable(("traced", self.name), "traced")
        active = call(self.space.object(is_profiling, "is_profiling"))
        self._line(f"if {active}: return {call(self._traced, [args])}")
        self._ranges[self.number] = None

    def in_range(self, range: Range, name: str) -> None:
        """Puts the last line, one statement, in a range of this name in the traced form of the function."""
        self._ranges[self.number] = call(self.space.object(range, "range"), [self.space.object(name, "name")])

    def guard(self) -> None:
        """Begins a ``try`` block, which ``guarded`` ends."""
        self._line("try:")
        self._indent += "    "

    def guarded(self, note: Name) -> None:
        """Ends the ``try`` block. An exception in it is passed to ``note``, and raised again if ``note`` returns."""
        self._indent = self._indent[:-4]
        raised = self.space.variable(("raised", self.name), "raised")
        self._line(f"except BaseException as {raised}:")
        self._line(f"    {call(note, [raised])}")
        self._line("    raise")

    def build(self, title: str) -> FunctionType:
        """Compiles the function. Its text is its docstring. ``title`` takes the place of a file name in tracebacks."""
        text, objects = "\n".join([*self._lines, ""]), self.space.objects
        if self._traced is not None:
            objects[str(self._traced)] = partial(_run_traced, objects, self._traced, text, self._ranges, title)
        return _compiled(objects, self.name, text, title)


def _compiled(objects: dict[str, Any], name: Name, text: str, title: str) -> FunctionType:
    exec(compile(text, f"<{title}>", "exec"), objects)
    made: FunctionType = objects[name]
    made.__doc__ = text
    _with_room(made)
    return made


def _run_traced(
    objects: dict[str, Any], name: Name, text: str, ranges: Mapping[int, Expression | None], title: str, args: Any
) -> Any:
    """Compiles the traced form of a function, which from then on is called in the place of this, and runs it."""
    lines = text.splitlines()
    lines[0] = f"def {name}{lines[0][lines[0].index('(') :]}"
    for number, context in ranges.items():
        statement = lines[number - 1].lstrip()
        indent = lines[number - 1].removesuffix(statement)
        lines[number - 1] = indent + ("pass" if context is None else f"with {context}: {statement}")
    return _compiled(objects, name, "\n".join([*lines, ""]), title)(args)


def _with_room(run: FunctionType) -> None:
    """Has a long function's frame open a chunk of the frame stack of its own.

    A frame that fills its caller's chunk leaves no room for the frames of its callees: each call would map a new chunk
    and unmap it, which takes 5 to 28 us instead of 0.2.
    """
    code = run.__code__
    if code.co_nlocals + code.co_stacksize > CHUNK // 4:
        run.__code__ = code.replace(co_stacksize=max(code.co_stacksize, CHUNK))
