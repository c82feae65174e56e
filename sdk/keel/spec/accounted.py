"""Where each operator of PyTorch ends: every overload that a captured graph could hold, and how it is accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from keel.spec.excluded import EXCLUSIONS, exclusion_of
from keel.spec.opset import OPSET, decomposition_of
from keel.spec.versions import CURRENT
from keel.torch_adapter import gives_tensors, is_overload, is_taken_apart, operator_named, overload_names, writes

How = Literal[
    "primitive",
    "composite",
    "opaque",
    "decomposed",
    "taken apart",
    "functionalized",
    "no tensor",
    "left out",
    "unknown",
]
MEANINGS: dict[How, str] = {
    "primitive": "An overload of a primitive.",
    "composite": "An overload of a composite: its decomposition ends in members.",
    "opaque": "An overload of an opaque operator, which has its reason.",
    "decomposed": "No member; PyTorch's table has a sound decomposition.",
    "taken apart": "PyTorch's dispatcher writes it out before a graph is captured.",
    "functionalized": "It writes to an argument; a graph has its functional form, which is accounted for by itself.",
    "no tensor": "It asks for a number or a fact, which a graph has as a size, or not at all.",
    "left out": "Left out by decision, with a reason.",
    "unknown": "None of these.",
}
NAMESPACES = ("aten", "prims", "higher_order", "quantized_decomposed", "c10d", "torch_nn", "torch_attn")
"""Whose operators can come up in graphs, beside those that are left out as a whole and ``_c10d_functional``."""


@dataclass(frozen=True)
class Account:
    """How an overload (by full name) is accounted for; ``why`` says what it is part of, or for which reason."""

    name: str
    how: How
    why: str = ""


def accounts(names: Iterable[str] | None = None) -> list[Account]:
    """For all overloads of PyTorch, or for those given; libraries of other people do not count."""
    return [account(n) for n in (overload_names() if names is None else names) if names is not None or is_pytorchs(n)]


def is_pytorchs(name: str) -> bool:
    """Whether the full name is of an operator that comes with PyTorch, and not with a package beside it."""
    return (
        name.partition(".")[0] in (*NAMESPACES, "_c10d_functional", "_c10d_functional_autograd")
        or exclusion_of(name) is not None
    )


def account(name: str) -> Account:
    """How one overload is accounted for.  Raises LookupError for a name that this PyTorch does not have."""
    op = operator_named(name)
    if op is None:
        raise LookupError(f"This PyTorch has no {name}.")
    if (member := OPSET.get(op)) is not None:
        return Account(name, member.kind, member.name)
    if (how := _before(op)) is not None:
        return Account(name, how)
    if (excluded := exclusion_of(name)) is not None:
        return Account(name, "left out", excluded.name)
    return Account(name, "unknown" if gives_tensors(op) or not is_overload(op) else "no tensor")


def reason_of(a: Account) -> str:
    """How an overload is accounted for, in words."""
    if a.how != "left out":
        return MEANINGS[a.how]
    excluded = next(e for e in EXCLUSIONS if e.name == a.why)
    return f"It is left out of opset {CURRENT} ({excluded.name}): {excluded.reason} {excluded.do}"


def _before(op: Callable[..., Any]) -> How | None:
    """What becomes of it before anybody asks whether it is left out."""
    if writes(op):
        return "functionalized"
    if is_taken_apart(op):
        return "taken apart"
    return None if decomposition_of(op) is None else "decomposed"
