"""What the suite says of its own conduct: from a log, from the text of an adapter, from one way to die."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel_conformance.harness.protocol import Settings
from keel_conformance.harness.run import run
from keel_selftest import robustness
from keel_selftest.crashes import CRASHES


def test_a_log_tells_what_was_begun_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"run": {}}\n{"begin": ["a", "b"]}\n{"begin": ["b", "c"]}\n{"end": []}\n{"begin": ["b"]}\n{"beg')
    assert (
        robustness.cases_repeated(log) == 2 and robustness.lines(log) == 5 and robustness.lines(tmp_path / "none") == 0
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ('"""Words."""\nimport os\n\nX = 1\n', 1),
        ("def f(x):\n    '''Words.'''\n    # more\n    return x\n", 2),
        ("Y = (1,\n     2)\n", 2),
    ],
)
def test_an_adapter_has_lines_of_code(text: str, count: int) -> None:
    assert robustness.code_lines(text) == count


def test_six_ways_to_die_are_tried() -> None:
    assert len(CRASHES) == 6 and all(death.backend.name.startswith("dies-") for death in CRASHES.values())


def test_some_cases_of_a_member_die_and_others_must_not() -> None:
    cases = robustness.some_of("neg")
    assert [c.dtype for c in cases].count("f64") == robustness.FEW and len(cases) > 2 * robustness.FEW


def test_a_death_is_the_case_that_dies(tmp_path: Path) -> None:
    cases = robustness.some_of("neg")
    ran = run(
        cases,
        "keel_selftest.crashes:leave.backend",
        out=tmp_path,
        settings=Settings("keel_selftest.crashes:leave.backend", threads=1),
    )
    assert {c.dtype == "f64": v.status for c, v in zip(cases, ran.verdicts, strict=True)} == {
        True: "crash",
        False: "pass",
    }
