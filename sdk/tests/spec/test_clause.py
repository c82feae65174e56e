"""What clauses say of themselves to code."""

from __future__ import annotations

from collections import defaultdict

from keel.spec import MEMBERS, About, Clause
from keel.spec.clause import clauses_of


def test_a_string_is_a_clause_about_nothing_in_particular() -> None:
    tagged = Clause("NaN gives NaN.", About.NONFINITE)
    assert clauses_of(["It is odd.", tagged]) == (Clause("It is odd."), tagged)
    assert not Clause("It is odd.").about and not Clause("It is odd.").parameters


def test_one_sentence_has_the_same_tags_everywhere() -> None:
    tags = defaultdict[str, set[Clause]](set)
    for op in MEMBERS.values():
        for clause in op.clauses:
            tags[clause.text].add(clause)
    assert not [clauses for clauses in tags.values() if len(clauses) > 1]


def test_each_tag_is_of_some_clause() -> None:
    assert {about for op in MEMBERS.values() for clause in op.clauses for about in clause.about} == set(About)


def test_parameters_are_those_of_a_member_with_the_clause() -> None:
    of = defaultdict[Clause, set[str]](set)
    for op in MEMBERS.values():
        if not op.targets:  # an older PyTorch lacks some members
            continue
        names = {a.name for t in op.targets if hasattr(t, "_schema") for a in t._schema.arguments}
        for clause in op.clauses:
            of[clause] |= names
    assert not [clause for clause, names in of.items() if not names >= set(clause.parameters)]


def test_preconditions_are_told_apart_by_their_ids() -> None:
    for op in MEMBERS.values():
        ids = [r.id for r in op.requires]
        assert len(set(ids)) == len(ids), op.name
