"""What would help most: estimates, their order, and what the user reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keel.profile.profile_facts import ProfileFacts, facts_of
from keel.profile.suggestions import SHOWN, Suggestion, estimates, suggestions
from keel.torch_adapter import GraphBreak

from .records import record


def about(profile: ProfileFacts, word: str) -> Suggestion:
    [one] = [s for s in estimates(profile) if word in s.what]
    return one


@pytest.fixture(scope="module")
def found() -> ProfileFacts:
    return facts_of(record())


def test_they_are_the_largest_and_once_comes_last(found: ProfileFacts) -> None:
    best = suggestions(found)
    assert len(best) == SHOWN and [s.seconds for s in best] == sorted((s.seconds for s in best), reverse=True)
    few = replace(found, breaks=(), fallbacks=(), medians={"keel": 16e-3}, times=replace(found.times, kernels=()))
    assert [s.once for s in suggestions(few)] == [False, True, True]


def test_another_compiler_that_is_faster_saves_the_difference(found: ProfileFacts) -> None:
    assert about(found, "inductor takes").seconds == pytest.approx(4e-3)
    assert not [s for s in estimates(found) if "eager takes" in s.what]


def test_a_fallback_names_the_line_the_reason_and_the_nearest_call(found: ProfileFacts) -> None:
    one = about(found, "eager runs sort")
    assert one.seconds == pytest.approx(3e-3)
    assert "net.py:7" in one.what and "acme has no sort." in one.what and "a top-k" in one.do


def test_a_break_saves_the_time_between_graphs(found: ProfileFacts) -> None:
    one = about(found, "breaks at net.py:5")
    assert one.seconds == pytest.approx(found.times.between) and one.do == "Do not print."


def test_breaks_share_and_a_skipped_function_is_outside_of_all_graphs() -> None:
    skipped = GraphBreak("It is too hard.", "", "net.py:9   hard()", is_skipped=True)
    made = facts_of(record(breaks=(*record().breaks, skipped)))
    assert about(made, "breaks at net.py:5").seconds == pytest.approx(made.times.between / 2)
    one = about(made, "does not compile the function at net.py:9")
    assert one.seconds == pytest.approx(made.times.outside / 2) and one.do


def test_a_kernel_above_its_roof_saves_what_is_above(found: ProfileFacts) -> None:
    one = about(found, "k_1 gelu of layer.*")
    assert one.seconds == pytest.approx(2e-3) and "2 times its roof, which is that of memory traffic" in one.what


def test_copies_and_launches_are_counted(found: ProfileFacts) -> None:
    assert about(found, "copies or converts 1 tensor").seconds == pytest.approx(3e-4)
    assert about(found, "for each of 6 launches").seconds == pytest.approx(found.times.inside)


def test_what_saves_next_to_nothing_is_left_out(found: ProfileFacts) -> None:
    slow = replace(found.times, seconds=1e3, busy=1e3)
    assert suggestions(replace(found, times=slow, medians={"keel": 1e3}, recompilations=())) == ()
