"""A case is a witness only if the mutant fails it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from keel.opset import MEMBERS
from keel_conformance.cases.anchors import anchors_of
from keel_conformance.cases.case import Case
from keel_conformance.cases.domain import Domain
from keel_conformance.cases.domains import declared_domain
from keel_conformance.cases.domains import domain_of as anchored_domain
from keel_conformance.cases.plan import case_of, cases_of
from keel_conformance.cli import app
from keel_conformance.witnesses.find_anchors import find_anchors
from keel_conformance.witnesses.table_report import OperatorTable, as_json
from keel_conformance.witnesses.witness_table import Cell, cells_of, is_judged


def domain_of(name: str) -> Domain:
    domain = declared_domain(name)
    assert domain is not None
    return domain


def plain_case(domain: Domain, **levels: str) -> Case:
    """A case with the first level of each other factor."""
    return case_of(domain, {f: levels.get(f, some[0]) for f, some in domain.factors.items()}, 0)


def test_a_case_with_special_values_witnesses_them_and_another_does_not() -> None:
    domain = domain_of("neg")
    special = plain_case(domain, dtype="f32", shape="129x9", values="specials")
    cells = cells_of(domain.op, [special], ["f32"])
    assert {name for (_, name), c in cells.items() if c.witness == special.id} >= {
        "NaN",
        "infinity",
        "zero",
        "subnormal",
    }
    assert cells["f32", "many"] == cells["f32", "row"] == Cell()
    assert cells["f32", "many"].reason == "no such call"
    same = cells_of(domain.op, [plain_case(domain, dtype="f32", shape="9", values="exact")], ["f32"])
    assert same["f32", "NaN"].reason == "no such call"


def test_what_does_not_matter_to_an_operator_has_no_effect() -> None:
    domain = domain_of("abs")
    cells = cells_of(domain.op, [plain_case(domain, dtype="f32", shape="129x9", values="specials")], ["f32", "f64"])
    assert {dtype for dtype, _ in cells} == {"f32"}
    assert cells["f32", "negative zero"].reason == "no effect"


def test_what_oracles_allow_is_told_from_what_has_no_effect() -> None:
    domain = domain_of("relu")
    cells = cells_of(domain.op, [plain_case(domain, dtype="f32", shape="129x9", values="specials")], ["f32"])
    assert cells["f32", "negative zero"].reason == "allowed"  # its clauses leave the sign open


def test_random_operators_have_no_mutants() -> None:
    assert not is_judged(MEMBERS["rand_like"])
    assert is_judged(MEMBERS["add"])


def test_anchors_are_found_for_what_cases_lack() -> None:
    domain = replace(domain_of("neg"), extra=())
    cases = [plain_case(domain, dtype="f32", shape="9", values="exact")]
    cells = cells_of(domain.op, cases, ["f32"])
    assert not cells["f32", "NaN"].witness and not cells["f32", "many"].witness
    anchors = find_anchors(replace(domain, factors={**domain.factors, "dtype": ("f32",)}), cells, cases, 0)
    assert cells["f32", "NaN"].witness and cells["f32", "many"].witness
    again = cells_of(domain.op, [case_of(domain, levels, 0) for levels in anchors], ["f32"])
    assert again["f32", "NaN"].witness and again["f32", "many"].witness


def test_stored_anchors_are_cases_of_tier_standard_and_of_no_smaller_one() -> None:
    domain, complete, anchors = domain_of("remainder"), anchored_domain("remainder"), anchors_of("remainder")
    assert complete is not None and anchors
    assert complete.extra == (*domain.extra, *anchors)
    standard, smoke = ({c.choice for c in cases_of(complete, tier, 0)} for tier in ("standard", "smoke"))
    choices = {case_of(complete, levels, 0).choice for levels in anchors}
    assert choices <= standard
    assert all(complete.allows(levels) for levels in anchors)
    assert len(smoke) < len(standard)


def test_a_table_lists_what_has_no_witness_by_reason() -> None:
    table = OperatorTable(
        "neg", {("f32", "NaN"): Cell("id"), ("f32", "many"): Cell(), ("f16", "many"): Cell(allowed=2)}
    )
    assert table.as_json() == {"witnessed": 1, "allowed": {"many": ["f16"]}, "no such call": {"many": ["f32"]}}
    assert as_json([table], {"tier": "smoke"})["operators"] == {"neg": table.as_json()}


def test_the_command_prints_a_row_for_each_class_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "witnesses.json"
    command = ["witnesses", "--op", "bitwise_not", "--tier", "smoke", "--jobs", "1", "--json", str(file)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "no such call" in result.output
    assert "NaN" not in result.output  # integers have none
    assert set(json.loads(file.read_text())["operators"]) == {"bitwise_not"}
