"""Pins: operators that the user assigns to one backend. The other backends refuse them, so every placement respects a
pin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from keel.errors import KeelError
from keel.plugin import Backend, Refusal
from keel.refusals import answer
from keel.spec import MEMBERS
from keel.torch_adapter import overload_names
from keel.types import Call


def pinned(
    backends: Sequence[Backend], pins: Mapping[str, str], elsewhere: Collection[str] = ()
) -> tuple[Backend, ...]:
    """The backends, in which only the named backend takes each operator in ``pins`` (``softmax``, ``aten.mm``).

    A call that the named backend refuses is decomposed, and the pin does not apply to its pieces; a primitive that it
    refuses is an error. ``elsewhere`` are backends that other graphs of the program may have: all ``backends`` refuse
    what is pinned to these. Raises KeelError[bad-option] for a backend that is among neither.
    """
    names = [b.name for b in backends]
    if nobody := [(op, who) for op, who in pins.items() if who not in names and who not in elsewhere]:
        raise KeelError(
            "bad-option",
            f"{nobody[0][0]} cannot be pinned to {nobody[0][1]!r}, which is not one of the backends in use.",
            {"backends": ", ".join(names)},
            do="Pin it to one of these, or add that backend.",
        )
    if not pins:
        return tuple(backends)
    items = tuple(pins.items())
    return tuple(replace(b, supports=_Pinned(b, items)) for b in backends)


@dataclass(frozen=True)
class _Pinned:
    """Refuses the operators that are pinned to other backends, and asks ``backend`` about all others. A value, so that
    equal settings compare equal.
    """

    backend: Backend
    pins: tuple[tuple[str, str], ...]

    def __call__(self, call: Call) -> Refusal | None:
        owner = next((who for operator, who in self.pins if is_of(call, operator)), self.backend.name)
        if owner != self.backend.name:
            return Refusal(f"{call.name} is pinned to {owner}.")
        return answer(self.backend, call)


def is_of(call: Call, operator: str) -> bool:
    """True if ``operator`` is one of the ``_names`` of the call's overload."""
    return operator in _names(call.name)


def _names(overload: str) -> tuple[str, ...]:
    """The names of an overload: the full name, the packet's, the packet's without library and leading underscore, and
    the full name without library.
    """
    packet = overload.rpartition(".")[0]
    short = packet.rpartition(".")[2]
    return overload, packet, short, short.lstrip("_"), overload.partition(".")[2]


def checked_pins(pins: Mapping[str, str]) -> Mapping[str, str]:
    """The pins. Raises KeelError[bad-option] for the name of an operator that PyTorch does not have. Operators of an
    unknown library are not checked, because the library may be registered later.
    """
    if not pins:
        return pins
    overloads = {*overload_names(), *(name for member in MEMBERS.values() for name in member.overloads)}
    known = {name for overload in overloads for name in _names(overload)}
    libraries = {overload.partition(".")[0] for overload in overloads}
    for operator in pins:
        library, dot, _ = str(operator).partition(".")
        if operator not in known and (not isinstance(operator, str) or not dot or library in libraries):
            near = get_close_matches(str(operator), known, n=1)
            raise KeelError(
                "bad-option",
                f"{operator!r} cannot be pinned: PyTorch has no such operator.",
                do=f"Did you mean {near[0]!r}?" if near else "Write softmax, aten.mm or aten.mm.default.",
            )
    return pins
