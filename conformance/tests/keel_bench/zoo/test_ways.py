"""What comes of the runs of the zoo becomes bars: nothing wrong, nothing that raises where ``aot_eager`` runs."""

from __future__ import annotations

from keel_bench.closure.trace_watch import sentence
from keel_bench.jobs import Job
from keel_bench.zoo.ways import HOLDS, NOT_AOT, RAISED, WRONG, bars
from keel_conformance.workers.pool import Outcome

STATIC, DYNAMIC = (Job("zoo-models", "bert", "cpp", along=along) for along in ("static", "dynamic"))


def test_runs_that_hold_are_counted_by_way() -> None:
    held, *others = bars(
        "models", {STATIC: Outcome({"ends": {HOLDS: ["2", "3"]}}), DYNAMIC: Outcome({"ends": {HOLDS: ["2"]}})}
    )
    assert (held.value, held.note) == (3, "inference dynamic: 1, inference static: 2")
    assert [bar.holds for bar in others] == [True, True, True, None, None, None]


def test_a_wrong_run_and_one_that_raises_fall_short_by_name() -> None:
    found = {
        bar.name: bar
        for bar in bars(
            "models",
            {
                STATIC: Outcome({"ends": {HOLDS: ["2"], WRONG: ["3: off"]}}),
                DYNAMIC: Outcome({"ends": {RAISED: ["2: KeelError"], NOT_AOT: ["3: no"]}}),
            },
        )
    }
    wrong, raised = found["models: wrong"], found["models: raised where aot_eager runs"]
    assert (wrong.value, wrong.holds, wrong.note) == (1, False, "bert inference static 3: off")
    assert (raised.value, raised.holds, raised.note) == (1, False, "bert inference dynamic 2: KeelError")
    assert found["models: aot_eager cannot"].holds is None and found["models: aot_eager cannot"].note == "bert"


def test_a_process_that_died_falls_short() -> None:
    died = {bar.name: bar for bar in bars("models", {STATIC: Outcome(None, "It died of SIGSEGV.")})}
    bar = died["models: processes that died or took too long"]
    assert bar.holds is False and bar.note == "bert inference static: It died of SIGSEGV."


def test_what_was_not_run_has_no_bar() -> None:
    assert not list(bars("models", {}))


def test_an_error_is_its_kind_and_its_first_line() -> None:
    assert sentence(ValueError("\n no such size \nmore")) == "ValueError: no such size"
    assert sentence(KeyError()) == "KeyError: "
