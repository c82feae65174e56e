"""Who took what, in words and as data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from keel import Backend, Cost, KeelError, KeelWarning, Rule, Support, explain
from keel.explain_page import drawing, page


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.chdir(Path(__file__).parent)  # lines of code are counted from here


def takes(
    name: str,
    *ops: str,
    compile: Callable[..., Any] = lambda gm: gm.forward,
    last: bool = False,
    dtypes: frozenset[torch.dtype] | None = None,
) -> Backend:
    return Backend(
        name=name, device="cpu", supports=Support((Rule(ops=ops, dtypes=dtypes),)), compile=compile, last_resort=last
    )


REST = takes("rest", "*", last=True)
ACME = takes("acme", "aten.mm", "aten.relu", dtypes=frozenset({torch.float32}))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x @ self.w).relu()
        return (y.double() @ y.double()).sin().sum()


@pytest.mark.slow
def test_a_model_in_training(golden: Callable[..., None]) -> None:
    model = Model()
    found = explain(model, torch.ones(4, 4), backends=[ACME, REST])
    assert [g.kind for g in found.graphs] == ["forward", "backward"]
    assert model.w.grad is None
    golden(re.sub(r"test_explanation.py:\d+(, \d+)*", "test_explanation.py:LINE", str(found)))


def test_taken_and_fallen_back() -> None:
    found = explain(lambda x: (x @ x).relu().sin().sin(), torch.ones(4, 4), backends=[ACME, REST])
    assert found.taken == {"acme": 2, "rest": 2} and found.fell_back == {"aten.sin.default": 2}
    assert found.backends == ("acme", "rest") and found.last_resorts == ("rest",)


def test_a_refusal_tells_backend_operator_reason_count_place_and_owner() -> None:
    found = explain(lambda x: (x.double() @ x.double()) @ x.double(), torch.ones(4, 4), backends=[ACME, REST])
    (refused,) = (r for r in found.graphs[0].refused if r.operator == "aten.mm.default")
    assert (refused.backend, refused.calls, refused.owner) == ("acme", 2, "rest")
    assert refused.reason == "acme has no aten.mm.default on float64." and refused.nearest == "a cast to float32"
    assert len(refused.where) == 1 and "x.double() @ x.double()" in refused.where[0]


def test_the_explanation_as_json() -> None:
    found = explain(lambda x: x.relu().sin(), torch.ones(4), backends=[ACME, REST])
    data = json.loads(json.dumps(found.as_json()))
    assert data["taken"] == {"acme": 1, "rest": 1} and data["fell_back"] == {"aten.sin.default": 1}
    assert data["graphs"][0]["parts"][0] == {
        "name": "p0",
        "owner": "acme",
        "claimed_by": "acme",
        "calls": 1,
        "operators": {"aten.relu.default": 1},
        "trouble": [],
        "reads": [],
        "work": None,
        "moves": None,
        "launch": None,
        "module": "",
        "modules": {"": {"aten.relu.default": 1}},
        "bytes_read": {"": 16},
        "fusions": {},
    }
    assert data["graphs"][0]["parts"][1]["reads"] == ["p0"]
    assert data["steps"] == [
        {"backend": "acme", "operator": "aten.sin.default", "calls": 1, "saved": None, "seconds": None, "then": 2}
    ]
    assert data["graphs"][0]["refused"][0]["reason"] == "acme has no aten.sin.default."


def test_a_part_whose_owner_could_not_compile_it(golden: Callable[..., None]) -> None:
    def fails(gm: torch.fx.GraphModule) -> Callable[..., Any]:
        raise RuntimeError("out of registers")

    with pytest.warns(KeelWarning, match="compile-raised"):
        found = explain(lambda x: x.relu(), torch.ones(4), backends=[takes("acme", "aten.relu", compile=fails), REST])
    assert found.taken == {"acme": 0, "rest": 1}
    assert "out of registers" in found.graphs[0].parts[0].trouble[0]
    golden(re.sub(r"test_explanation.py:\d+(, \d+)*", "test_explanation.py:LINE", str(found)))


@pytest.mark.slow
def test_graph_breaks_show_as_several_graphs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        return y.sin() if y.sum() > 0 else y.cos()

    found = explain(fn, torch.ones(4), backends=[REST])
    assert [g.kind for g in found.graphs] == ["inference"] * 2 and found.graphs[1].parts[0].operators == {
        "aten.sin.default": 1
    }


@pytest.mark.slow
def test_it_explains_what_is_compiled_already() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.relu()

    assert [len(explain(fn, torch.ones(4), backends=[REST]).graphs) for _ in range(3)] == [1, 1, 1]


def test_a_function_without_tensors() -> None:
    found = explain(lambda n: n + 1, 3, backends=[REST])
    assert found.graphs == () and "Nothing was compiled" in str(found)


@pytest.mark.slow
def test_the_page_about_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "how" / "see-the-placement.md"
    (code, *_) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(code, str(page), "exec"), {})
    printed = capsys.readouterr().out
    assert "forward:" in printed and "backward:" in printed and "'cpp':" in printed


SHEET = Cost(flops={torch.float32: 1e9}, scalars=1e6, bandwidth=1e9, launch=1e-6)
PRICED = [replace(ACME, cost=replace(SHEET, scalars=1e9)), replace(REST, cost=SHEET)]


def test_parts_have_their_seconds_where_all_backends_have_data_sheets(golden: Callable[..., None]) -> None:
    found = explain(lambda x: (x @ x).relu().sin().sin().cos(), torch.ones(64, 64), backends=PRICED)
    (graph,) = found.graphs
    assert graph.seconds == pytest.approx(sum((p.work or 0) + (p.moves or 0) + (p.launch or 0) for p in graph.parts))
    assert [(s.operator, s.calls) for s in found.steps] == [("aten.sin.default", 2), ("aten.cos.default", 1)]
    assert found.steps[0].saved == pytest.approx(2 * (4096 / 1e6 - 2 * 4 * 4096 / 1e9))  # by arithmetic, by traffic
    golden(re.sub(r"test_explanation.py:\d+(, \d+)*", "test_explanation.py:LINE", str(found)))


def test_by_cost_there_is_a_bound() -> None:
    (graph,) = explain(lambda x: (x @ x).sin(), torch.ones(64, 64), backends=PRICED, placement="cost").graphs
    assert graph.bound is not None and graph.seconds is not None and graph.bound <= graph.seconds * (1 + 1e-9)


@pytest.mark.slow
def test_what_if_a_backend_took_more_or_was_not_there() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x, -1).relu()

    never = replace(PRICED[0], compile=lambda gm: pytest.fail("compiled"))
    x = torch.ones(64, 64)
    assert explain(model, x, backends=PRICED).taken == {"acme": 2, "rest": 1}
    more = explain(model, x, backends=[never, PRICED[1]], assume=["acme.softmax"])
    assert more.taken == {"acme": 3, "rest": 0} and not more.fell_back
    assert explain(model, x, backends=[never, PRICED[1]], without=["relu"]).taken == {"acme": 1, "rest": 2}
    less = explain(model, x, backends=[never, PRICED[1]], without=["acme.mm"])
    assert less.taken == {"acme": 1, "rest": 2}
    assert "acme is supposed not to take aten.mm.default." in str(less)
    assert explain(model, x, backends=[never, PRICED[1]], without=["acme"]).taken == {"rest": 3}
    with pytest.raises(KeelError, match="Unknown backend in 'softmax'"):
        explain(model, x, backends=PRICED, assume=["softmax"])


def test_the_page_has_parts_refusals_and_steps_and_needs_no_other_file() -> None:
    found = explain(lambda x: (x @ x).relu().sin().sum() + (x @ x).sum(), torch.ones(64, 64), backends=PRICED)
    text = page({"my <model>": found})
    assert "my &lt;model&gt;" in text and "acme has no aten.sin.default." in text
    assert not re.findall(r"(?:src|href)=|https?:|@import|url\(", text)
    drawn = drawing(found.graphs[0], found.backends)
    assert [b.group.name for b in drawn.boxes] == [p.name for p in found.graphs[0].parts]
    assert sum(b.share for b in drawn.boxes) == pytest.approx(1)
    assert len(drawn.lines) == sum(len(p.reads) for p in found.graphs[0].parts) > 0


def test_refusals_of_backends_after_the_owner_are_left_out() -> None:
    first, second = takes("first", "aten.mm"), takes("second", "aten.relu")
    found = explain(lambda x: (x @ x).relu().sin(), torch.ones(4, 4), backends=[first, second, REST])
    refused = [(r.backend, r.operator, r.owner) for r in found.graphs[0].refused]
    assert sorted(refused) == [
        ("first", "aten.relu.default", "second"),
        ("first", "aten.sin.default", "rest"),
        ("second", "aten.sin.default", "rest"),
    ]


def test_the_text_fits_in_80_columns() -> None:
    found = explain(nn.Sequential(*(nn.Linear(4, 4) for _ in range(9))), torch.ones(4, 4), backends=[ACME, REST])
    assert max(map(len, str(found).splitlines())) <= 80
