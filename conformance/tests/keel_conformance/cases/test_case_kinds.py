"""Each kind of case has a room that knows it, and a writer of its scripts."""

from __future__ import annotations

from typing import get_args

import pytest

from keel_conformance.cases.case import Kind
from keel_conformance.cases.case_kinds import PACKAGES, package_of
from keel_conformance.repro.write_scripts import WRITERS


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_room_has_cases_of_its_kind_and_judges_them(kind: Kind) -> None:
    room = package_of(kind)
    assert {case.kind for case in room.cases("smoke", 0)} == {kind}
    assert callable(room.run_case) and callable(room.judge)


def test_every_kind_has_a_room_or_is_of_operators() -> None:
    assert {*PACKAGES, "op", "negative"} == {*get_args(Kind)} == {*WRITERS}
