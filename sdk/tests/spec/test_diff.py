"""Each kind of change, and the part of the version that must rise for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from keel.spec import Budget, Clause, Op, Requires
from keel.spec.diff import diff, level, next_version
from keel.spec.lock import lock
from keel.spec.rules import ANY, DENSE, Out, like, shape_of
from keel.spec.versions import Version

F32 = torch.float32
OP = Op(
    "twice",
    "primitive",
    "sample",
    ("aten.twice.default", "aten.twice.Scalar"),
    "Two times x.",
    (Clause("NaN gives NaN."), Clause("Integers wrap around.")),
    out=(Out(like("self"), shape_of("self"), DENSE),),
    dtypes=(F32,),
    requires=(Requires("x-rank", "x has a dimension.", lambda args: True),),
    budget={F32: Budget(ulps=2)},
    tags=frozenset({"pointwise"}),
)


def found(old: Iterable[Op], new: Iterable[Op]) -> list[tuple[str, str]]:
    return [(d.level, d.sentence) for d in diff(lock(old, Version(1, 3)), lock(new, Version(1, 3)))]


CHANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"clauses": (*OP.clauses, Clause("-0 gives -0."))}, "minor", "The clause is new: -0 gives -0."),
    ({"clauses": OP.clauses[:1]}, "major", "The clause is gone: Integers wrap around."),
    ({"clauses": (Clause("NaN gives NaN"), OP.clauses[1])}, "patch", "The clause is spelt: NaN gives NaN"),
    ({"dtypes": (F32, torch.int8)}, "minor", "It gains the dtype int8."),
    ({"dtypes": ()}, "major", "It loses the dtype float32."),
    ({"overloads": (*OP.overloads, "aten.twice.out")}, "minor", "It gains the overload aten.twice.out."),
    ({"overloads": OP.overloads[:1]}, "major", "It loses the overload aten.twice.Scalar."),
    ({"overloads": OP.overloads[::-1]}, "major", "Its normal form is aten.twice.Scalar and was aten.twice.default."),
    ({"requires": ()}, "minor", "The precondition is gone: x has a dimension."),
    (
        {"out": (Out(like("self"), shape_of("self"), ANY),)},
        "major",
        "The layout of result 0 is any dense and was row-major.",
    ),
    ({"out": (*OP.out, *OP.out)}, "major", "The types of its results are given by another rule."),  # type: ignore[misc]
    ({"compute": like("self")}, "major", "The dtype that it computes in changed from None to dtype(self)."),
    ({"budget": {F32: Budget(ulps=1)}}, "minor", "Its error in float32 is at most 1 ulps and was at most 2 ulps."),
    ({"budget": {F32: Budget(ulps=3)}}, "major", "Its error in float32 is at most 3 ulps and was at most 2 ulps."),
    ({"budget": {}}, "major", "Its error in float32 is bounded no more."),
    (
        {"budget": {F32: Budget(times=2)}},
        "major",
        "Its error in float32 is at most 2 times eager's and was at most 2 ulps.",
    ),
    ({"tags": frozenset()}, "minor", "It loses the tag pointwise."),
    ({"family": "other"}, "minor", "It moves from family sample to other."),
    ({"profile": "linalg"}, "major", "It moves from profile core to linalg."),
    ({"doc": "x + x."}, "patch", "Its description is now: x + x."),
    ({"kind": "composite"}, "minor", "A primitive becomes a composite: backends no longer need it."),
    ({"kind": "opaque"}, "major", "It was a primitive and is opaque now."),
]


@pytest.mark.parametrize(
    ("change", "part", "sentence"), CHANGES, ids=lambda v: next(iter(v)) if isinstance(v, dict) else ""
)
def test_a_change(change: dict[str, Any], part: str, sentence: str) -> None:
    changes = found([OP], [replace(OP, **change)])
    assert (part, sentence) in changes
    assert changes[0][0] == part, changes


def test_members_that_come_and_go() -> None:
    assert found([], [OP]) == [("minor", "It is new.")]
    assert found([OP], []) == [("major", "It is gone.")]
    assert found([OP], [OP]) == []


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("composite", "primitive", "major"),
        ("opaque", "primitive", "minor"),
        ("opaque", "composite", "minor"),
        ("composite", "opaque", "major"),
    ],
)
def test_kinds(old: Any, new: Any, part: str) -> None:
    assert found([replace(OP, kind=old)], [replace(OP, kind=new)])[0][0] == part


def test_a_clause_keeps_its_number() -> None:
    changes = found([OP], [replace(OP, clauses=OP.clauses[::-1])])
    assert {part for part, _ in changes} == {"major"} and "another number" in changes[0][1]


def test_the_types_of_results_written_down() -> None:
    whole = replace(OP, kind="composite")
    assert found([replace(whole, out=None)], [whole]) == [("minor", "The types of its results are written down.")]


def test_experimental_members_change_in_minor_versions() -> None:
    tried = replace(OP, tags=frozenset({"experimental"}))
    assert found([tried], []) == [("minor", "It is gone.")]
    assert {p for p, _ in found([tried], [replace(tried, dtypes=())])} == {"minor"}
    assert ("major", "It was stable and is experimental now.") in found([OP], [tried])
    assert ("minor", "It loses the tag experimental.") in found([tried], [replace(OP, tags=frozenset())])


def test_the_version_that_changes_need() -> None:
    a = lock([OP], Version(1, 3, 1))
    for new, wanted in (
        (OP, "1.3.1"),
        (replace(OP, doc="x + x."), "1.3.2"),
        (replace(OP, dtypes=(F32, torch.int8)), "1.4"),
        (replace(OP, dtypes=()), "2.0"),
    ):
        assert str(next_version(a, diff(a, lock([new])))) == wanted
    assert level([]) is None
