"""Finding members by what people type: a member's name, an overload's, or nearly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from keel.errors import KeelError
from keel.spec.accounted import account, reason_of
from keel.spec.op import Op
from keel.spec.opset import MEMBERS
from keel.torch_adapter import overload_names


@dataclass(frozen=True)
class Counted:
    """A family and how many members it has of each kind, and how many clauses."""

    family: str
    primitive: int
    composite: int
    opaque: int
    clauses: int


def families(members: Mapping[str, Op] = MEMBERS) -> list[Counted]:
    """All families, by name."""
    kinds = Counter((op.family, op.kind) for op in members.values())
    clauses: Counter[str] = Counter()
    for op in members.values():
        clauses[op.family] += len(op.clauses)
    return [
        Counted(f, kinds[f, "primitive"], kinds[f, "composite"], kinds[f, "opaque"], clauses[f])
        for f in sorted({op.family for op in members.values()})
    ]


def find(name: str, members: Mapping[str, Op] = MEMBERS) -> list[Op]:
    """The members of that name: a member's (``add``), an overload's (``aten.add.Tensor``), or an operator's with all
    its overloads (``aten.add``).  Raises KeelError[bad-option], with what may have been meant, if there is
    no such member.
    """
    plain = name.removeprefix("torch.ops.").replace("::", ".")
    if plain in members:
        return [members[plain]]
    results = [op for op in members.values() if any(_named(o, plain) for o in op.overloads)]
    if results:
        return results
    if members is MEMBERS and (why := _elsewhere(plain)):
        raise KeelError("bad-option", f"The opset has no operator {name!r}.", why)
    overloads = {o for op in members.values() for o in op.overloads}
    known = overloads if plain.count(".") > 1 else {*members, *(o.rpartition(".")[0] for o in overloads)}
    near = get_close_matches(plain, known, n=5, cutoff=0.6) or sorted(n for n in known if plain and plain in n)[:5]
    raise KeelError(
        "bad-option",
        f"The opset has no operator {name!r}.",
        do=f"Did you mean {', '.join(near)}?" if near else "keel ops lists the families.",
    )


def _elsewhere(name: str) -> dict[str, str]:
    """Where those operators of PyTorch end that are of this name and no members."""
    results = [account(o) for o in overload_names() if _named(o, name)]
    return {a.name: reason_of(a) for a in results}


def _named(overload: str, name: str) -> bool:
    _, packet, rest = overload.split(".")
    return name in (overload, overload.rpartition(".")[0], packet, f"{packet}.{rest}")
