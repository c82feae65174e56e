"""Repeated layers are shown once: in the groups of parts, and in the tree of modules."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser

import torch
from torch import Tensor, nn

from keel import explain
from keel.explain_page import page
from keel.module_tree import module_tree
from keel.part_groups import common_pattern, grouped
from keel.reports import PartReport

from .line import takes, whole


def part(
    name: str, owner: str, modules: Mapping[str, Mapping[str, int]], module: str = "", work: float = 0
) -> PartReport:
    operators = {op: n for counts in modules.values() for op, n in counts.items()}
    calls = sum(operators.values())
    figures = {"work": work, "moves": 0.5, "launch": 0.25} if work else {}
    return PartReport(name, owner, owner, calls, operators, (), module=module, modules=modules, **figures)


def test_parts_that_differ_in_numbers_of_layers_are_a_group_with_the_sums_of_their_figures() -> None:
    parts = [
        part("p0", "a", {"layer.0.x": {"mm": 2}}, "layer.0.x", work=1),
        part("p1", "b", {"layer.0.x": {"mm": 2}}, "layer.0.x", work=1),
        part("p2", "a", {"layer.1.x": {"mm": 2}}, "layer.1.x", work=3),
        part("p3", "a", {"layer.2.x": {"mm": 3}}, "layer.2.x", work=1),
        part("p4", "a", {"layer2.x": {"mm": 2}}, "layer2.x", work=1),
    ]
    groups = grouped(parts)
    assert [(g.name, g.module, g.calls) for g in groups] == [
        ("p0 (2x)", "layer.*.x", 4),
        ("p1", "layer.0.x", 2),
        ("p3", "layer.2.x", 3),
        ("p4", "layer2.x", 2),
    ]
    assert groups[0].seconds == (4, 1, 0.5)
    assert grouped([part("p0", "a", {})])[0].seconds is None
    assert common_pattern(["a.0.b.1", "a.1.b.1"]) == "a.*.b.1"


def test_the_tree_has_calls_by_module_and_backend_and_folds_layers_that_are_alike() -> None:
    alike = {f"layer.{i}.x": {"mm": 2} for i in range(3)} | {f"layer.{i}": {"add": 1} for i in range(3)}
    tree = module_tree([part("p0", "a", alike | {"": {"sum": 1}}), part("p1", "b", {"layer.3.x": {"mm": 2}})])
    assert tree.calls == {"a": 10, "b": 2} and tree.operators == {("a", "sum"): 1}
    (layer,) = tree.children
    first, last = layer.children
    assert (first.name, first.calls, [child.name for child in first.children]) == ("0 to 2", {"a": 3}, ["x"])
    assert (last.name, last.calls) == ("3", {"b": 2})


def test_layers_that_are_alike_but_not_next_to_each_other_are_named_one_by_one() -> None:
    modules = {"layer.0": {"mm": 1}, "layer.1": {"add": 1}, "layer.2": {"mm": 1}}
    (layer,) = module_tree([part("p0", "a", modules)]).children
    assert [child.name for child in layer.children] == ["0, 2", "1"]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x)
        return x


def test_reports_have_modules_and_the_bytes_that_parts_read() -> None:
    torch.compiler.reset()
    backends = [takes("addmm", "t", name="acme"), whole("rest", last_resort=True)]
    with torch.no_grad():
        (graph,) = explain(Model(), torch.ones(2, 4), backends=backends).graphs
    groups = grouped(graph.parts)
    assert [(g.name, g.module) for g in groups] == [("p0 (3x)", "layer.*.0"), ("p1 (3x)", "layer.*.1")]
    assert graph.parts[0].bytes_read == {"": 4 * (2 * 4 + 4 * 4 + 4)}
    assert graph.parts[1].bytes_read == {"p0": 4 * 2 * 4} and graph.parts[1].reads == ("p0",)
    (layer,) = module_tree(graph.parts).children
    assert layer.name == "layer" and [child.name for child in layer.children] == ["0 to 2"]


class Elements(HTMLParser):
    """Checks that elements are closed in order, and collects their texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_page_is_well_formed_and_shows_each_layer_once() -> None:
    torch.compiler.reset()
    backends = [takes("addmm", "t", name="acme"), whole("rest", last_resort=True)]
    elements = Elements()
    elements.feed(page({"model": explain(Model(), torch.ones(2, 4), backends=backends)}))
    elements.close()
    assert elements.open == []
    assert elements.texts.count("(3 alike, each:)") == 1  # in backward the first layer has no gradient of its input
    assert {"What to add next", "p0 (3x): 6 calls", "p0 (3x) to p1 (3x): 96 B"} <= {*elements.texts}
