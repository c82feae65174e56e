"""Cases are drawn by a seed and a number alone."""

from __future__ import annotations

from keel_bench.debugging.planting import STAGES, drawn, model_of, stage_of

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
