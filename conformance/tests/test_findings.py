"""docs/findings.md and the scripts beside it say the same, and each script stands alone."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "findings.md").read_text()
SCRIPTS = sorted(p for p in (DOCS / "findings").glob("*.py") if p.name != "run.py")
ALLOWED = {"torch", "openvino", "triton", "sys", "os", "math", "re", "subprocess", "tempfile"}
BACKENDS = {"eager", "aot_eager", "inductor", "openvino", "ptxas"}


def test_each_script_has_a_row_of_the_table_and_a_section() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(findings/(\w+)\.py\) \|", TEXT, re.MULTILINE)
    assert [shown for shown, _ in rows] == [linked for _, linked in rows]
    assert sorted(shown for shown, _ in rows) == [p.stem for p in SCRIPTS]
    assert sorted(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)) == [p.stem for p in SCRIPTS]
    assert len(rows) >= 10


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_is_short_imports_little_and_compiles_for_the_backend_it_is_named_after(script: Path) -> None:
    text = script.read_text()
    assert len(text.splitlines()) <= 40
    tree = ast.parse(text)
    found = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in found} <= ALLOWED
    assert ast.get_docstring(tree)
    assert re.search(r"(sys\.|os\._)exit\(", text)
    asked = {name or tool for name, tool in re.findall(r'backend="(\w+)"|/(ptxas)"', text)} or {"eager"}
    assert asked <= BACKENDS
    assert any(script.stem.startswith(name) for name in asked)


def test_the_table_of_what_is_mended_is_what_was_recorded() -> None:
    standing = json.loads((DOCS / "findings" / "standing.json").read_text())
    assert standing.keys() <= {p.stem for p in SCRIPTS}
    assert {said for by in standing.values() for said in by.values()} <= {"holds", "gone"}
    gone = {name: [release for release, said in by.items() if said == "gone"] for name, by in standing.items()}
    first = {name: min(seen, key=numbers) for name, seen in gone.items() if seen}
    assert dict(re.findall(r"^\| (\w+) \| ([\d.]+) \|$", TEXT, re.MULTILINE)) == first
    for name, release in first.items():  # none comes back
        assert all(said == "gone" for other, said in standing[name].items() if numbers(other) >= numbers(release))


def test_the_section_of_a_script_says_whether_it_is_mended() -> None:
    mended = dict(re.findall(r"^\| (\w+) \| ([\d.]+) \|$", TEXT, re.MULTILINE))
    sections = dict(re.findall(r"^### (\w+)$(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL))
    for name, section in sections.items():
        (status,) = re.findall(r"^\* status: (.*(?:\n  .*)*)", section, re.MULTILINE)
        assert re.findall(r"gone in ([\d.]+\d)", status) == ([mended[name]] if name in mended else []), name


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def test_a_record_is_what_the_scripts_say_here() -> None:
    """Three that take a second each; ``run.py --check`` runs them all."""
    names = ["eager_hardsigmoid_gradient", "eager_learned_zero_point", "eager_bag_frequencies"]
    done = subprocess.run(
        [sys.executable, str(DOCS / "findings" / "run.py"), "--check", *names],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^(?:holds|gone) ", done.stdout, re.MULTILINE)) == len(names)
