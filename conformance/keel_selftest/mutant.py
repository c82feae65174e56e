"""A mutant: a backend that is wrong in one place, what that breaks, and which cases its operators can reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from keel import Backend, Rule, Support
from keel_conformance.cases.case import Case

from .rewiring import Change, rewired

Level = Literal["op", "system", "loop", "control", "benign"]


@dataclass(frozen=True)
class Mutant:
    """``breaks`` are the members and clauses of the contract that a failure may rightly name: ``add``, or
    ``contract.calls.C1``, or a whole chapter of it (``contract.calls``). ``about`` says in a sentence what is wrong.

    ``subject`` is the text by which any process finds ``backend``. ``calls`` are patterns of operators (packets, as
    ``aten.add``) that it does otherwise, ``programs`` patterns of the programs, graphs and kernels that have them.
    """

    name: str
    level: Level
    breaks: tuple[str, ...]
    about: str
    subject: str
    backend: Backend
    calls: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def reaches(self, case: Case) -> bool:
        """Whether the case can show it: its operator is one that is done otherwise, or its program has one.

        A graph-level backend is given the very operator that a case calls, so no other case runs what is wrong. It
        renders no kernels, so a kernel case shows only mutants of loop level.
        """
        if case.kind == "kernel" and self.level != "loop":
            return False
        if case.kind in ("op", "negative"):
            return fits(packet_of(case.overload), self.calls)
        return fits(case.op, self.programs)

    def explains(self, case: Case, clause: str) -> bool:
        """Whether a failure of the case that cites ``clause`` names the right thing."""
        named = {case.op, *([clause] if clause else []), clause.rpartition(".")[0]}
        return not named.isdisjoint(self.breaks) or clause.partition(".")[0] in self.breaks


def packet_of(overload: str) -> str:
    return overload.rpartition(".")[0]


def fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def slug(function: Callable[..., Any]) -> str:
    return function.__name__.strip("_").replace("_", "-")


def sentence(function: Callable[..., Any]) -> str:
    return " ".join((function.__doc__ or "").split())


def reference(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__name__}.backend"


def backend_of(name: str, compile: Callable[..., Any], prefix: str = "mutant") -> Backend:
    """One that takes every operator, on the host."""
    return Backend(name=f"{prefix}-{name}", device="cpu", supports=Support((Rule(ops=("*",)),)), compile=compile)


def wrong(
    *calls: str, breaks: str | tuple[str, ...], programs: tuple[str, ...] = (), as_is: bool = False, level: Level = "op"
) -> Callable[[Change], Mutant]:
    """Makes a mutant of what is done in place of the operators ``calls``: a function of the operator and its arguments.

    Its results are laid out as the operator's own, unless ``as_is``.
    """

    def made(change: Change) -> Mutant:
        name = slug(change)
        named = (breaks,) if isinstance(breaks, str) else breaks
        return Mutant(
            name,
            level,
            named,
            sentence(change),
            reference(change),
            backend_of(name, rewired(calls, change, as_is)),
            calls,
            programs,
        )

    return made


def broken(
    *, breaks: str | tuple[str, ...], calls: tuple[str, ...] = (), programs: tuple[str, ...] = ("*",)
) -> Callable[[Callable[..., Any]], Mutant]:
    """Makes a mutant of a function that compiles a part: from its graph to what is called instead."""

    def made(compile: Callable[..., Any]) -> Mutant:
        name = slug(compile)
        return Mutant(
            name,
            "system",
            (breaks,) if isinstance(breaks, str) else breaks,
            sentence(compile),
            reference(compile),
            backend_of(name, compile),
            calls,
            programs,
        )

    return made
