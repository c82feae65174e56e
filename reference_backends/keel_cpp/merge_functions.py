"""Merges functions that differ only in numbers: one body takes these numbers as parameters, and each function calls it.

A network has the same kernel for each of its sizes, and the compiler would take as long for every one of them. Swift's
compiler does the same to its generics (LLVM's ``LLVMMergeFunctions``). A number keeps its type, so the body means what
the functions meant. A number that the compiler has to know, such as the extent of an array, has the suffix ``u``, and
is never made a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

NUMBER = re.compile(r"(?<![\w.])\.?\d(?:[eEpP][+-]|[\w.])*")
"""A number, with its suffix, as the preprocessor of C++ defines it."""
FORMS = (
    (re.compile(r"\d{1,9}"), "int"),
    (re.compile(r"\d{10,18}"), "i64"),
    (re.compile(r"(?:\d+\.\d*|\d+(?=e))(?:e[+-]?\d+)?f"), "float"),
    (re.compile(r"(?:\d+\.\d*|\d+(?=e))(?:e[+-]?\d+)?"), "double"),
)
"""The numbers that may become parameters, with their types."""


def definitions(functions: Mapping[str, str]) -> list[str]:
    """The C++ that defines ``functions``: the text from the parameters on, ``a, b) {...}``, by exported name."""
    alike: dict[str, list[str]] = {}
    for name, text in functions.items():
        alike.setdefault(NUMBER.sub(lambda m: f"<{_type(m[0]) or m[0]}>", text), []).append(name)
    defined = []
    for names in alike.values():
        defined += _exported(names[0], functions[names[0]]) if len(names) == 1 else _merged(names, functions)
    return defined


def _type(number: str) -> str | None:
    """The type of a number that may become a parameter."""
    return next((ctype for form, ctype in FORMS if form.fullmatch(number)), None)


def _exported(name: str, text: str) -> list[str]:
    return [f'extern "C" __attribute__((visibility("default"))) void {name}({text}']


def _merged(names: Sequence[str], functions: Mapping[str, str]) -> list[str]:
    """One function that has the body, and one for each name that calls it.

    Numbers of the body that are equal to each other in every function become one parameter.
    """
    places = list(zip(*(NUMBER.findall(functions[name]) for name in names), strict=True))
    differing = dict.fromkeys(numbers for numbers in places if len(set(numbers)) > 1)
    names_of = {numbers: f"number{k}" for k, numbers in enumerate(differing)}
    at = iter(places)
    body = NUMBER.sub(lambda m: names_of.get(next(at), m[0]), functions[names[0]])
    params, _, block = body.partition(") {")
    numbers = "".join(f", {_type(n[0])} {name}" for n, name in names_of.items())
    shared = f"merged_{names[0]}"
    defined = [f"SHARED void {shared}({params}{numbers}) {{{block}"]
    passed = re.findall(r"(\w+)(?:,|$)", params)
    for k, name in enumerate(names):
        args = ", ".join([*passed, *(n[k] for n in differing)])
        defined += _exported(name, f"{params}) {{ {shared}({args}); }}\n")
    return defined
