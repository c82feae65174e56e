"""Cases are drawn by a seed and a number alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from keel_bench.debugging import debug_case
from keel_bench.debugging.planting import STAGES, Defect, drawn, model_of, stage_of

PLACES = {"calls": ["aten.mul.Tensor 3", "aten.exp.default 2"], "externs": ["aten.mm.default 2"], "scalars": ["erf"]}


def test_a_case_is_the_same_again() -> None:
    cases = [drawn(5, n, "bert", PLACES) for n in range(0, 80, 8)]
    assert cases == [drawn(5, n, "bert", PLACES) for n in range(0, 80, 8)]
    assert cases != [drawn(6, n, "bert", PLACES) for n in range(0, 80, 8)]


def test_stages_and_modes_take_turns() -> None:
    count = len(STAGES)
    assert [stage_of(n) for n in range(count)] == list(STAGES)
    models = [model_of(1, n, ("bert", "vit")) for n in range(2 * count)]
    assert not any(m.endswith(".training") for m in models[:count])
    assert all(m.endswith(".training") for m in models[count:])
    assert {m.removesuffix(".training") for m in models} == {"bert", "vit"}


def test_kinds_of_failure_are_all_drawn() -> None:
    kinds = {drawn(1, n, "bert", PLACES).kind for n in range(0, 4000, 8)}
    assert kinds == {"wrong", "nan", "type", "raises", "crash", "hang", "memory"}


def test_the_operator_is_known_where_one_is_planted() -> None:
    assert drawn(1, STAGES.index("extern"), "bert", PLACES).operator == "aten.mm.default"
    kernel = drawn(1, STAGES.index("rendering"), "bert", PLACES)
    assert kernel.operator == "" and kernel.backend.endswith(".erf") and kernel.place == "erf"


def test_a_defect_that_does_not_show_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, shown = drawn(5, 0, "bert", PLACES), list[str]()

    def answer(words: Sequence[str], more: Mapping[str, str], least: Any = None) -> Any:
        if words[0] == "places":
            return PLACES
        shown.append(words[2])
        return {"kind": "" if words[2] == first.probe else "wrong"}

    monkeypatch.setattr(debug_case, "answer_of", answer)
    planted = debug_case.plant(5, 0, "bert", Path())
    assert planted is not None and planted.probe == shown[-1] != first.probe == shown[0]


def test_a_model_that_needs_no_call_at_a_place_has_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"places": PLACES, "shows": {"kind": ""}}
    monkeypatch.setattr(debug_case, "answer_of", lambda words, *_, **__: answers[words[0]])
    assert debug_case.plant(5, 0, "bert", Path()) is None


def test_a_defect_that_ends_its_process_is_looked_for_by_one_that_raises() -> None:
    backend = "keel_bench.debugging.planted:plugin.{}.any.aten.exp.default"
    crash = Defect("bert", "plugin", backend.format("aborting"), "aborting", "aten.exp.default any", "crash")
    wrong = Defect("bert", "plugin", backend.format("scaled"), "scaled", "aten.exp.default any", "wrong")
    assert (crash.probe, wrong.probe) == (backend.format("failing"), wrong.backend)
