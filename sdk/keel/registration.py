"""Checks of a plugin's declarations. Each mistake raises KeelError[bad-plugin], which says what to write instead.

Each function takes ``what``, words for the value that is checked (``A Rule``), and the name of the field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, signature
from numbers import Real
from types import CodeType
from typing import Any, NoReturn

import torch

from keel.errors import KeelError
from keel.spec import MEMBERS
from keel.torch_adapter import operator_named, overload_names, registered_names
from keel.types import DTYPE_NAMES, DTYPES_BY_NAME

FAMILIES = frozenset({*torch.Tag.__members__, "view"})
"""The families of operators that a support table may name: PyTorch's tags, and views."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_DEVICE = re.compile(r"[a-z][a-z0-9_]*")
_ASYNCHRONOUS = CO_COROUTINE | CO_ASYNC_GENERATOR
_OVERLOAD = 3
"""The words of an overload's name (``aten.mm.default``); a packet's (``aten.mm``) has one less."""


def bad(sentence: str, do: str) -> NoReturn:
    """Raises KeelError[bad-plugin]."""
    raise KeelError("bad-plugin", sentence, do=do)


def checked_name(what: str, name: object) -> None:
    """Checks the name of a backend: letters, digits, ``_`` and ``-`` only, because it is used in lists and in
    ``backend.operator``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        words = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-") if isinstance(name, str) else ""
        bad(f"{what} has the name {name!r}.", f"Write letters, digits, _ and - only: name={words or 'acme'!r}.")


def checked_device(what: str, device: object, *, any_device: bool = True) -> None:
    """Checks a device: the type of a device, without a number. ``*`` means any device, if ``any_device``."""
    if any_device and device == "*":
        return
    if not isinstance(device, str):
        kind = device.type if isinstance(device, torch.device) else "cpu"
        bad(
            f"{what} has device={device!r}, which is of type {type(device).__name__}.",
            f"Write the type of the device as text: device={kind!r}.",
        )
    if not _DEVICE.fullmatch(device):
        kind = re.sub(r"[^a-z0-9_]", "", device.lower().partition(":")[0])
        bad(
            f"{what} has device={device!r}, which is not the type of a device.",
            f"Write the type alone, for a backend serves all devices of that type: device={kind or 'cpu'!r}.",
        )


def checked_call(
    what: str,
    field: str,
    value: object,
    meaning: str,
    *,
    optional: bool = False,
    takes: int | None = None,
    by_name: str = "",
) -> None:
    """Checks a hook: a function or another callable that does not return a coroutine. ``takes`` is the number of its
    positional arguments, if Python can tell; None means any number. It may have a parameter called ``by_name``.
    """
    if value is None and optional:
        return
    if not callable(value):
        bad(f"{what} has {field}={_shown(value)}, which cannot be called.", f"Write a function: {meaning}.")
    function = getattr(value, "func", value)  # of functools.partial
    if any(
        code.co_flags & _ASYNCHRONOUS
        for f in (function, vars(type(function)).get("__call__"))
        if isinstance(code := getattr(f, "__code__", None), CodeType)
    ):
        bad(
            f"{what} has an asynchronous function as {field}: calling it returns a coroutine, not an answer.",
            f"Write a plain function: {meaning}.",
        )
    if takes is not None and not _can_take(value, takes, by_name):
        many = "one argument" if takes == 1 else f"{takes or 'no'} arguments"
        bad(f"{what} has a function as {field} that cannot be called with {many}.", f"Write a function: {meaning}.")


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """True if ``function`` declares a parameter ``name`` and accepts it as a keyword. A wrapper has the signature of
    the function that it wraps (``functools.wraps``), but may not accept the same arguments.
    """
    try:
        if name not in signature(function).parameters:
            return False
        signature(function, follow_wrapped=False).bind_partial(**{name: None})
    except (TypeError, ValueError):  # ValueError: some functions written in C have no signature
        return False
    return True


def _can_take(function: Callable[..., Any], arguments: int, by_name: str) -> bool:
    named = {by_name: None} if has_parameter(function, by_name) else {}
    try:
        signature(function).bind(*[None] * arguments, **named)
    except TypeError:
        return False
    except ValueError:  # some functions written in C have no signature
        return True
    return True


def checked_flag(what: str, field: str, value: object) -> None:
    """Checks that a flag is True or False."""
    if not isinstance(value, bool):
        bad(f"{what} has {field}={_shown(value)}.", f"Write {field}=True or {field}=False.")


def checked_type(what: str, field: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Checks that a value has one of the types ``kinds``. ``expected`` says what to write."""
    if not isinstance(value, kinds):
        bad(f"{what} has {field}={_shown(value)}, which is of type {type(value).__name__}.", f"Write {expected}.")


def checked_number(
    what: str, field: str, value: object, *, least: float = 0.0, above: bool = False, most: float = math.inf
) -> None:
    """A real number of at least ``least``, or ``above`` it, and of at most ``most``; infinity where that is."""
    span = f"a number {'above' if above else 'of at least'} {least:g}"
    span += "" if math.isinf(most) else f" and of at most {most:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        bad(f"{what} has {field}={_shown(value)}, which is of type {type(value).__name__}.", f"Write {span}.")
    try:
        number = float(value)
    except OverflowError:
        bad(f"{what} has {field}={_shown(value)}, which is larger than any float.", f"Write {span}.")
    if math.isnan(number) or number < least or (above and number == least) or number > most:
        bad(f"{what} has {field}={number:g}.", f"Write {span}.")


def checked_count(what: str, field: str, value: object) -> None:
    """A whole number, at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        bad(f"{what} has {field}={_shown(value)}.", "Write a whole number of at least 1.")


def texts(what: str, field: str, value: object, example: str) -> tuple[str, ...]:
    """The texts of a field that holds a tuple of them, at least one."""
    if isinstance(value, str):
        bad(
            f"{what} has {field}={value!r}, which is a text and not a tuple.",
            f"Write a tuple, with the comma: {field}=({value!r},).",
        )
    if not isinstance(value, Collection) or isinstance(value, Mapping | bytes):
        bad(
            f"{what} has {field}={_shown(value)}, which is of type {type(value).__name__}.",
            f"Write a tuple of texts: {field}=({example!r},).",
        )
    if not value:
        bad(f"{what} has an empty {field}: it would name nothing.", f"Write at least one: {field}=({example!r},).")
    for each in value:
        if not isinstance(each, str):
            text = str(each) if operator_named(str(each)) is not None else example
            bad(
                f"{what} has {_shown(each)} in {field}, which is of type {type(each).__name__}.",
                f"Write its name as text: {text!r}.",
            )
    return tuple(value)


def dtypes(what: str, field: str, value: object) -> frozenset[torch.dtype]:
    """The dtypes of a field that holds a frozenset of them, at least one."""
    if isinstance(value, torch.dtype):
        bad(
            f"{what} has {field}={value}, which is one dtype and not a set.",
            f"Write a frozenset: {field}=frozenset({{{value}}}).",
        )
    if isinstance(value, str) or not isinstance(value, Collection):
        bad(
            f"{what} has {field}={_shown(value)}, which is of type {type(value).__name__}.",
            f"Write a frozenset of dtypes: {field}=frozenset({{torch.float32}}).",
        )
    if not value:
        bad(
            f"{what} has an empty {field}: no tensor is of it.",
            f"Write at least one, or leave it out: {field}=frozenset({{torch.float32}}).",
        )
    for each in value:
        checked_dtype(what, field, each)
    return frozenset(value)


def checked_dtype(what: str, field: str, value: object) -> None:
    """One of the dtypes that graphs may hold."""
    if isinstance(value, torch.dtype):
        if value not in DTYPE_NAMES:
            bad(
                f"{what} has {value} in {field}, which graphs do not hold.",
                f"Leave it out. Graphs hold {', '.join(str(d) for d in DTYPE_NAMES)}.",
            )
        return
    text = value.removeprefix("torch.") if isinstance(value, str) else getattr(value, "__name__", str(value))
    meant = DTYPES_BY_NAME.get(text) or getattr(torch, text, None)
    known = {str(d): d for d in DTYPE_NAMES}
    near = [str(meant)] if isinstance(meant, torch.dtype) else get_close_matches(f"torch.{text}", known, n=1)
    bad(
        f"{what} has {_shown(value)} in {field}, which is not a dtype of PyTorch.",
        f"Write {near[0] if near else 'torch.float32'}.",
    )


def table(what: str, field: str, value: object, keys: str, *, empty: bool = True) -> Mapping[Any, Any]:
    """A field that holds a mapping."""
    if not isinstance(value, Mapping):
        bad(f"{what} has {field}={_shown(value)}, which is of type {type(value).__name__}.", f"Write a dict by {keys}.")
    if not value and not empty:
        bad(f"{what} has an empty table {field}.", f"Write at least one row, by {keys}.")
    return value


def checked_keys(what: str, field: str, names: Collection[object], known: Collection[str], kind: str) -> None:
    """Each of ``names`` is one of the ``known``."""
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            bad(
                f"{what} has {name!r} in {field}, which is not a {kind}.",
                f"Did you mean {near[0]!r}?" if near else f"Write one of {', '.join(sorted(known))}.",
            )


def checked_operators(
    what: str, field: str, names: Collection[str], *, families: Collection[str] = (), packets: bool = True
) -> None:
    """Each of ``names`` is an overload of PyTorch or of the operator set (``aten.mm.default``), a packet where
    ``packets`` (``aten.mm``), or one of ``families``.  What is of a library that PyTorch does not know is left alone,
    for that may be registered later.
    """
    for name in names:
        if name in families or _exists(name, packets):
            continue
        near = _meant(name, families, packets)
        library = _plain(name).partition(".")[0]
        if near is None and name == _plain(name) and name.count(".") in (1, 2) and library not in _libraries():
            continue
        bad(
            f"{what} has {name!r} in {field}, which PyTorch does not have.",
            f"Did you mean {near!r}?"
            if near
            else _NAMED.format(
                torch.__version__,
                "" if packets else ", in full: aten.mm.default",
                " or of a family, like pointwise" if families else "",
            ),
        )


_NAMED = (
    "Write the name of an operator that PyTorch {} has{}{}. What only another version of PyTorch has is listed "
    "where hasattr(torch.ops.aten, name) says so."
)


def _exists(name: str, packets: bool) -> bool:
    words = name.count(".") + 1  # the cheapest question first: tables have hundreds
    if words == _OVERLOAD:
        return name in _opset() or operator_named(name) is not None
    return (
        packets
        and words == _OVERLOAD - 1
        and (name in _opset() or operator_named(f"{name}.default") is not None or name in _packets())
    )


@cache
def _opset() -> frozenset[str]:
    """The names of all overloads of the operator set, of whichever version of PyTorch, and their packets'."""
    overloads = {name for member in MEMBERS.values() for name in member.overloads}
    return frozenset(overloads | {name.rpartition(".")[0] for name in overloads})


def _packets() -> frozenset[str]:
    return frozenset(name.rpartition(".")[0] for name in registered_names())


def _libraries() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in registered_names()) | {"higher_order"}


def _plain(name: str) -> str:
    return name.strip().removeprefix("torch.ops.").replace("::", ".")


def _meant(name: str, families: Collection[str], packets: bool) -> str | None:
    """The name that was meant, probably."""
    plain = _plain(name)
    plain = f"aten.{plain[6:]}" if plain.startswith("torch.") else plain
    names = {*overload_names(), *_opset()} - {n for n in _opset() if n.count(".") < _OVERLOAD - 1}
    overloads = {n for n in names if n.count(".") == _OVERLOAD - 1}
    known = overloads | ({n.rpartition(".")[0] for n in overloads} if packets else set())
    tries = [t for n in (plain, plain.lower()) for t in (n, f"{n}.default", f"aten.{n}", f"aten.{n}.default")]
    if exact := next((t for t in tries if t in known or t in families), None):
        return exact
    if "." not in plain:
        near = get_close_matches(plain, families, n=1, cutoff=0.7)
        short = {n.partition(".")[2]: n for n in sorted(known) if n.startswith("aten.")}
        return near[0] if near else next((short[n] for n in get_close_matches(plain, short, n=1, cutoff=0.7)), None)
    alike = [n for n in known if n.count(".") == plain.count(".")] if packets or plain.count(".") > 1 else known
    return next(iter(get_close_matches(plain, alike, n=1, cutoff=0.8)), None)


def _shown(value: object, most: int = 60) -> str:
    try:
        text = repr(value)
    except Exception:  # of a class of the vendor's, or of an integer too long
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}…"
