"""What counts as missing of a level, and what the end of a run says about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keel_conformance.cases.case import Case
from keel_conformance.levels.level import Level, Profile
from keel_conformance.levels.needs import Needs
from keel_conformance.levels.standing import Standing, headline, standing_of, unmet
from keel_conformance.results.verdict import Verdict

NEEDS = Needs({"neg": {"f32": frozenset({"contiguous"})}, "exp": {"f32": frozenset({"contiguous", "transposed"})}})
LEVEL = Level("inference-1", frozenset({"core", "dynamic"}), NEEDS, "inference", frozenset({"dynamic"}))


def case(op: str, layout: str = "contiguous", dtype: str = "f32") -> Case:
    return Case(op, "pointwise", "op", "core", f"aten.{op}.default", dtype, (("layout", layout),))


NEG, EXP, TURNED = case("neg"), case("exp"), case("exp", "transposed")
GAPPED, WIDE = case("exp", "gapped"), case("neg", dtype="f64")
PROGRAM = Case("sizes", "shapes", "program", "dynamic")
PLAN = (NEG, EXP, TURNED, GAPPED, WIDE, PROGRAM)
FINE = {c.id: Verdict(c.id, "pass") for c in PLAN} | {PROGRAM.id: Verdict(PROGRAM.id, "pass", figures={"parts": 2})}


def standing(**changed: Verdict) -> Standing:
    names = {"neg": NEG, "exp": EXP, "turned": TURNED, "gapped": GAPPED, "wide": WIDE, "program": PROGRAM}
    verdicts = FINE | {names[k].id: replace(v, case=names[k].id) for k, v in changed.items()}
    return standing_of(LEVEL, PLAN, verdicts.values())


def test_all_that_is_required_is_taken_and_right() -> None:
    found = standing()
    assert (found.state, found.required, found.held) == ("conforms", 3, 3)
    assert headline("acme", Profile("inference-1", LEVEL.includes, LEVEL), True, [found]) == (
        "acme conforms to inference-1."
    )


REFUSAL = Verdict("", "not claimed", "placement", "acme: acme has no aten.neg.default.")


@pytest.mark.parametrize(
    ("name", "verdict", "how"),
    [
        ("neg", REFUSAL, "refused"),
        ("turned", REFUSAL, "refused"),
        ("exp", Verdict("", "pass", figures={"refused": "acme: acme has no aten.expand.default."}), "refused in part"),
        ("exp", Verdict("", "fail", "ulp", "It is off."), "wrong"),
        ("exp", Verdict("", "waived", "ulp", "The driver flushes."), "waived"),
        ("program", Verdict("", "pass", figures={"parts": 0}), "left to eager PyTorch"),
    ],
)
def test_what_is_required_and_not_held_is_missing(name: str, verdict: Verdict, how: str) -> None:
    found = standing(**{name: verdict})
    ((gap),) = found.gaps
    assert (found.state, found.held, gap.how, gap.cases) == ("lacks", 2, how, 1)
    said = unmet(Profile("inference-1", LEVEL.includes, LEVEL), [found], "acme", complete=True)
    assert "2 of 3 required" in said[0] and gap.op in said[0]


def test_what_is_not_required_may_be_refused() -> None:
    assert standing(gapped=REFUSAL, wide=REFUSAL).state == "conforms"


def test_what_pytorch_does_not_do_is_not_required() -> None:
    assert standing(neg=Verdict("", "not run", "raises", "PyTorch itself does not.")).required == 2


def test_a_run_of_a_part_reaches_no_level() -> None:
    found = standing_of(LEVEL, PLAN, [FINE[NEG.id]])
    profile = Profile("inference-1", LEVEL.includes, LEVEL)
    assert found.state == "not judged" and unmet(profile, [found], "acme", complete=True)
    assert not unmet(profile, [found], "acme", complete=False)
    assert "judges no level in full" in headline("acme", Profile("core", frozenset()), True, [found])


def test_a_toy_is_right_and_conforms_to_no_level() -> None:
    said = headline("toy", Profile("core", frozenset({"core"})), True, [standing(neg=REFUSAL)])
    assert said == (
        "toy is right in all that it claims of profile core, and conforms to no level: of inference-1 it has "
        "2 of 3 required operators and dtypes."
    )
