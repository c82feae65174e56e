"""Pages say what the declarations say, and their examples run."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from keel import KeelError
from keel.documents import MARKER
from keel.spec import MEMBERS, Op
from keel.spec.examples import code, example, harvested, output
from keel.spec.pages import pages, path_of, wrap, write

EXAMPLE = "\n## Example\n"
DOCS = Path(__file__).parents[3] / "docs" / "spec"


@cache
def made() -> dict[str, str]:
    return pages()


def declared(page: str, other: str) -> str:
    """A page without what depends on the PyTorch at hand: signatures, what an example prints, and all of an example
    that the other one lacks, since this PyTorch or that one does not run it.
    """
    page = re.sub(r"^\| `.*$", "", page, flags=re.MULTILINE)
    return page.partition("\nprints\n" if EXAMPLE in other else EXAMPLE)[0].rstrip()


@pytest.mark.slow
def test_every_member_has_a_page_with_all_its_clauses() -> None:
    for op in MEMBERS.values():
        text = " ".join(made()[path_of(op)].split())
        missing = [label for label, c in op.cited if f"**{label}** {wrap(c.text)}".replace("\n", " ") not in text]
        assert not missing
        assert all(f"`{o}`" in text for o in op.overloads)


@pytest.mark.slow
def test_the_pages_that_lie_there_are_those_of_the_declarations() -> None:
    here = {str(p.relative_to(DOCS)): p.read_text() for p in DOCS.glob("*/*.md")}
    if here:
        stale = [
            p
            for p, text in made().items()
            if "/" in p and declared(here.get(p, ""), text) != declared(text, here.get(p, ""))
        ]
        gone = here.keys() - made().keys()
        assert not stale and not gone, f"Run `keel spec docs`: {[*stale, *gone][:10]}"


@pytest.mark.slow
def test_no_line_is_longer_than_the_page() -> None:
    wide = [
        (p, line)
        for p, text in made().items()
        if p.endswith(".md")
        for line in text.splitlines()
        if len(line) > 120 and not line.startswith("|")
    ]
    assert not wide


@pytest.mark.slow
def test_links_lead_to_pages() -> None:
    paths = {*made(), "stability.md", "../adr/0013-tensors-are-strided.md"}
    broken = [
        (p, link)
        for p in ("README.md", "outside.md")
        for link in re.findall(r"\]\(([^)#\s]+)", made()[p])
        if link not in paths
    ]
    assert not broken
    anchors = set(re.findall(r"\(\.\./README\.md#([^)]*)\)", "".join(made().values())))
    assert anchors <= set(re.findall(r"\(#([^)]*)\)", made()["README.md"]))


@pytest.mark.slow
def test_the_search_page_holds_every_member() -> None:
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', made()["index.html"], re.DOTALL)
    assert text is not None
    data = json.loads(text[1])
    assert {m["name"] for m in data} == set(MEMBERS) and {m["page"] for m in data} <= set(made())
    assert "{{" not in made()["index.html"]


def test_harvested_examples_are_of_members() -> None:
    assert set(harvested()) <= set(MEMBERS), "Run `keel spec docs --harvest`."


@pytest.mark.slow
def test_examples_run() -> None:
    """Those of members that this PyTorch has."""
    shown = {name: example(op) for name, op in MEMBERS.items() if op.targets}
    failed = [name for name, c in shown.items() if c is not None and output(c) is None]
    assert not failed
    primitives = [n for n, op in MEMBERS.items() if op.kind == "primitive" and op.samples is not None and op.targets]
    assert sum(shown[n] is not None for n in primitives) >= 0.9 * len(primitives)


def sample(**values: object) -> Op:
    return Op("twice", "primitive", "sample", ("aten.exp.default",), "", (), **values)  # type: ignore[arg-type]


def test_arguments_as_code() -> None:
    x = torch.tensor([[1.234, float("inf")], [0.5, -2.0]])
    args = (x, [1, 2], None, True, 2.5, "sum", torch.float16, float("nan"), torch.tensor([True]))
    assert (
        code(sample(), "aten.exp.default", args, {"dim": (1,)})
        == """\
import torch

x = torch.tensor([[1.23, float("inf")], [0.5, -2.0]])
y = torch.tensor([True])
print(torch.ops.aten.exp.default(x, [1, 2], None, True, 2.5, "sum", torch.float16, float("nan"), y, dim=(1,)))"""
    )
    assert (
        code(sample(), "aten.exp.default", (torch.zeros(5, 10, dtype=torch.float64),), {})
        == """\
import torch

x = torch.linspace(0.0, 0.0, 50, dtype=torch.float64).reshape(5, 10)
print(torch.ops.aten.exp.default(x))"""
    )
    assert code(sample(), "aten.exp.default", (torch.Generator(),), {}) is None
    assert code(sample(), "aten.exp.default", (torch.zeros(1000, dtype=torch.int64),), {}) is None
    assert code(sample(profile="random"), "aten.exp.default", (torch.ones(2),), {}).endswith(  # type: ignore[union-attr]
        "    print(r.dtype, tuple(r.shape))"
    )


def test_what_an_example_prints() -> None:
    assert output("print(1 + 1)") == "2" and output("import torch\ntorch.nothing") is None


def test_writing_takes_away_the_pages_of_members_that_are_gone(tmp_path: Path) -> None:
    members = {name: MEMBERS[name] for name in ("exp", "sin")}
    assert write(tmp_path, members) == (5, 0)
    (tmp_path / "elementwise-unary" / "notes.md").write_text("mine")
    assert write(tmp_path, {"sin": MEMBERS["sin"]}) == (4, 1)
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.*")} == {
        MARKER,
        "README.md",
        "outside.md",
        "index.html",
        "elementwise-unary/notes.md",
        "elementwise-unary/sin.md",
    }


def test_a_folder_that_it_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "mine.md").write_text("mine")
    with pytest.raises(KeelError, match="does not write into"):
        write(tmp_path, {"sin": MEMBERS["sin"]})
    assert [p.name for p in tmp_path.rglob("*.md")] == ["mine.md"]


def test_a_list_that_leads_elsewhere_takes_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("mine")
    folder = tmp_path / "pages"
    write(folder, {"sin": MEMBERS["sin"]})
    with (folder / MARKER).open("a") as file:
        file.write(f"../mine.md\n{tmp_path}/mine.md\n../../x/y.md\n")
    write(folder, {"sin": MEMBERS["sin"]})
    assert (tmp_path / "mine.md").read_text() == "mine"
