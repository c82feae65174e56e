"""Decides whether a backend takes a call, by its rows of data or by its function, and why not."""

from __future__ import annotations

import warnings
from collections.abc import Coroutine
from dataclasses import dataclass

import torch

from keel.errors import KeelError, KeelWarning, first_line
from keel.interrupts import is_interrupt
from keel.plugin import Backend, Refusal, Rule, Support
from keel.torch_adapter import parameters
from keel.types import Call, SymType, TensorType, leaves


def refusal(backend: Backend, call: Call, *, strict: bool = False) -> Refusal | None:
    """Why ``backend`` does not take ``call``; None if it takes it.

    A ``supports`` that raises, or that returns something else than None, a sentence or a Refusal, counts as a refusal,
    with a KeelWarning; under ``strict`` it raises KeelError[refuse-raised].
    """
    try:
        return answer(backend, call)
    except CannotSay as error:
        if strict:
            raise
        warnings.warn(str(error), KeelWarning, stacklevel=2)
        return error.refusal


@dataclass(eq=False)
class CannotSay(KeelError):
    """KeelError[refuse-raised]: a ``supports`` that raised, or returned an invalid answer."""

    backend: str = ""
    raised: str = ""

    @property
    def refusal(self) -> Refusal:
        """The refusal that replaces the error, unless it is raised."""
        return Refusal(f"{self.backend} raised {self.raised}")


def answer(backend: Backend, call: Call) -> Refusal | None:
    """Why ``backend`` does not take ``call``; None if it takes it. Raises ``CannotSay``, and exceptions of the user."""
    if (refused := _off_device(backend, call) or _too_wide(backend, call)) is not None:
        return refused
    try:
        if isinstance(backend.supports, Support):
            return _refused(backend, backend.supports, call)
        return _sentence(backend.supports(call))
    except CannotSay:  # raised by the backend that this one wraps
        raise
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        rule = "its `supports` returns None to take a call, or a sentence that says why not."
        raise _cannot_say(backend, f"it takes {call}", rule, raised) from raised


def prefers(backend: Backend, call: Call) -> bool:
    """False if ``backend`` would rather leave a call that it takes to others. Raises ``CannotSay``, and exceptions of
    the user.
    """
    if backend.prefers is None:
        return True
    try:
        wants = backend.prefers(call)
        if not isinstance(wants, bool):
            raise TypeError(f"`prefers` returned {type(wants).__name__}, not True or False.")
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        rule = "its `prefers` returns True or False for each call that it takes."
        raise _cannot_say(backend, f"it prefers {call}", rule, raised) from raised
    return wants


def _cannot_say(backend: Backend, what: str, rule: str, raised: BaseException) -> CannotSay:
    """The error for a plugin's function that raised, or returned an invalid answer. ``rule`` says what it returns."""
    why = first_line(raised)
    return CannotSay(
        "refuse-raised",
        f"{backend.name} could not say whether {what}.",
        {backend.name: why},
        None,
        f"This is a defect of the plugin: {rule}",
        backend.name,
        why,
    )


def _off_device(backend: Backend, call: Call) -> Refusal | None:
    if backend.device == "*":
        return None
    for t in (*call.tensors, *(o for o in call.out if isinstance(o, TensorType))):
        on_host = backend.host_scalars and t.rank == 0 and t.device.type == "cpu"
        if t.device.type != backend.device and not on_host:
            return Refusal(
                f"{backend.name} works on {backend.device} tensors, not on {t}"
                + (" on cpu." if t.device.type == "cpu" else "."),
                f"a copy on {backend.device}",
            )
    return None


def _too_wide(backend: Backend, call: Call) -> Refusal | None:
    """The refusal of a dtype that the device does not compute in."""
    for t in (*call.tensors, *(o for o in call.out if isinstance(o, TensorType))):
        if backend.arithmetic.lacks(t.dtype) and backend.device in ("*", t.device.type):
            near = "complex64" if t.dtype.is_complex else "float32"
            return Refusal(
                f"{backend.name} has no {call.name} on {_show(t.dtype)}: it has no float64.", f"a cast to {near}"
            )
    return None


def _refused(backend: Backend, support: Support, call: Call) -> Refusal | None:
    """The refusal of the row that is closest to taking the call; None if a row takes it."""
    rows = [r for r in support.rules if _names(r, call)]
    if not rows:
        return Refusal(f"{backend.name} has no {call.name}.", _sibling(support, call))
    nearest: tuple[int, Refusal] | None = None
    for row in rows:
        failed = next(
            ((step, why) for step, check in enumerate(_CHECKS) if (why := check(backend.name, row, call)) is not None),
            None,
        )
        if failed is None:
            return None
        if nearest is None or failed[0] > nearest[0]:
            nearest = failed
    return nearest[1] if nearest else None


def _names(rule: Rule, call: Call) -> bool:
    named = {"*", call.name, call.name.rpartition(".")[0], *_families(call)}
    return not named.isdisjoint(rule.ops)


def _families(call: Call) -> set[str]:
    tags = {tag.name for tag in getattr(call.op, "tags", ())}
    return tags | {"view"} if getattr(call.op, "is_view", False) else tags


def _sibling(support: Support, call: Call) -> str | None:
    """Another overload of the same operator in the table."""
    packet = call.name.rpartition(".")[0]
    return next((o for rule in support.rules for o in rule.ops if o.rpartition(".")[0] == packet), None)


def _bad_dtype(name: str, rule: Rule, call: Call) -> Refusal | None:
    if rule.dtypes is None:
        return None
    for t in call.tensors or call.out:
        if isinstance(t, TensorType) and t.dtype not in rule.dtypes:
            return Refusal(
                f"{name} has no {call.name} on {_show(t.dtype)}.", f"a cast to {_listed(rule.dtypes, t.dtype)}"
            )
    return None


def _bad_result(name: str, rule: Rule, call: Call) -> Refusal | None:
    if rule.results is None:
        return None
    for t in call.out:
        if isinstance(t, TensorType) and t.dtype not in rule.results:
            return Refusal(
                f"{name} has no {call.name} with a result of {_show(t.dtype)}.",
                f"a result of {_listed(rule.results, t.dtype)}",
            )
    return None


def _bad_rank(name: str, rule: Rule, call: Call) -> Refusal | None:
    if rule.ranks is None:
        return None
    low, high = rule.ranks
    span = f"rank {low}" if low == high else f"rank {low} to {high}"
    for t in call.tensors:
        if not low <= t.rank <= high:
            return Refusal(
                f"{name} takes {call.name} at {span}, not at rank {t.rank}.",
                f"{t} reshaped to rank {min(max(t.rank, low), high)}",
            )
    return None


def _not_contiguous(name: str, rule: Rule, call: Call) -> Refusal | None:
    for t in call.tensors if rule.contiguous else ():
        if not t.is_contiguous:
            return Refusal(f"{name} takes {call.name} on contiguous tensors, not on {t}.", "a contiguous copy")
    return None


def _several_dtypes(name: str, rule: Rule, call: Call) -> Refusal | None:
    if not rule.one_dtype or not call.tensors:
        return None
    dtypes = list(dict.fromkeys(t.dtype for t in call.tensors))
    if len(dtypes) > 1:
        return Refusal(
            f"{name} takes {call.name} on tensors of one dtype, not on {' and '.join(map(_show, dtypes))}.",
            "a cast of each to one of these",
        )
    if not (dtypes[0].is_floating_point or dtypes[0].is_complex):
        for value in leaves((call.args, [*call.kwargs.values()])):
            if isinstance(value, float) or (isinstance(value, SymType) and value.kind == "float"):
                return Refusal(
                    f"{name} takes {call.name} on operands of one dtype, not on {_show(dtypes[0])} and {value}.",
                    "a cast to a floating-point dtype",
                )
    return None


def _empty(name: str, rule: Rule, call: Call) -> Refusal | None:
    for t in (call.tensors or call.out) if rule.nonempty else ():
        if isinstance(t, TensorType) and 0 in t.shape:
            return Refusal(f"{name} takes {call.name} on tensors with elements, not on {t}.")
    return None


def _not_default(name: str, rule: Rule, call: Call) -> Refusal | None:
    if rule.optional is None or not hasattr(call.op, "overloadpacket"):
        return None
    known = parameters(call.op)
    values = dict(zip((p.name for p in known), call.args, strict=False)) | dict(call.kwargs)
    for p in known:
        value = values.get(p.name, p.default)
        if not p.required and p.name not in rule.optional and not _same(value, p.default):
            return Refusal(f"{name} takes {call.name} without {p.name}={_written(value)}.", f"{p.name}={p.default}")
    return None


def _same(value: object, default: object) -> bool:
    if isinstance(default, list | tuple) and default:  # one number stands for as many
        return list(value) == list(default) if isinstance(value, list | tuple) else all(value == d for d in default)
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return not value
    return value is default or (not isinstance(value, TensorType | SymType) and value == default)


def _written(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _not_static(name: str, rule: Rule, call: Call) -> Refusal | None:
    if not rule.static:
        return None
    args = [v for v in leaves([list(call.args), list(call.kwargs.values())]) if isinstance(v, TensorType | SymType)]
    for kind in (*args, *call.out):
        unknown = kind.symbols if isinstance(kind, TensorType) else isinstance(kind, SymType) and not _known(kind)
        if unknown:
            return Refusal(
                f"{name} takes {call.name} at known sizes only, not {_at(kind, kind in args)}.",
                "sizes that are marked static, as by dynamic=False, or padded to one size",
            )
    return None


def _at(kind: TensorType | SymType | None, is_known: bool) -> str:
    if isinstance(kind, SymType):
        return f"with the number {kind.expr}{'' if is_known else ' as its result'}"
    return f"on {kind}" if is_known else f"with a result of {kind}"


def _known(number: SymType) -> bool:
    return not getattr(number.expr, "free_symbols", None)


def _declined(name: str, rule: Rule, call: Call) -> Refusal | None:
    return _sentence(rule.when(call)) if rule.when else None


# From the coarsest to the finest. The row that fails at the last of these checks is closest to taking the call.
_CHECKS = (
    _bad_dtype,
    _bad_result,
    _several_dtypes,
    _bad_rank,
    _empty,
    _not_contiguous,
    _not_static,
    _not_default,
    _declined,
)


def _sentence(answer: object) -> Refusal | None:
    match answer:
        case None | Refusal():
            return answer
        case str() if answer.strip():
            return Refusal(answer)
    if isinstance(answer, Coroutine):
        answer.close()  # otherwise Python warns that it was never awaited
    shown = (
        repr(answer)
        if answer is None or isinstance(answer, str | bytes | int | float | tuple | list | dict)
        else (f"a {type(answer).__name__}")
    )
    raise TypeError(f"`supports` returned {shown[:80]}.")


def _show(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(dtypes: frozenset[torch.dtype], near: torch.dtype) -> str:
    """The dtypes in words: those of the same kind as ``near`` first, then by width."""

    def far(d: torch.dtype) -> tuple[bool, int, str]:
        return _kind(d) != _kind(near), d.itemsize, str(d)

    return " or ".join(_show(d) for d in sorted(dtypes, key=far))


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_complex or dtype.is_floating_point:
        return "complex" if dtype.is_complex else "float"
    return "bool" if dtype == torch.bool else "int"
