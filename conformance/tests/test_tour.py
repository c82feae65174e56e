"""The tour prints what it says: its code runs in order, and each block of output is what the code before it wrote."""

from __future__ import annotations

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "tour.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(code: str, names: dict[str, Any], before: int) -> str:
    """What the code prints; it stands after ``before`` lines of the page."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile("\n" * before + code, PAGE.name, "exec"), names)
    return "".join(line.rstrip() + "\n" for line in printed.getvalue().splitlines())


@pytest.mark.filterwarnings("ignore::keel.KeelWarning")
def test_the_tour_prints_what_it_says(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KEEL_DUMP", "")
    monkeypatch.setenv("COLUMNS", "100")
    torch.compiler.reset()
    tour = ModuleType("tour")
    monkeypatch.setitem(sys.modules, "tour", tour)  # PyTorch 2.11 looks up the module of a traced function
    names = vars(tour)
    page, printed = PAGE.read_text(), ""

    def block(found: re.Match[str]) -> str:
        nonlocal printed
        kind, text = found.groups()
        if kind == "python":
            printed = run(text, names, page.count("\n", 0, found.start(2)))
            return found[0]
        return f"```text\n{printed}```"

    now = BLOCK.sub(block, page)
    if now != page and request.config.getoption("--bless"):
        PAGE.write_text(now)
    elif torch.__version__.startswith("2.13."):  # other versions number the nodes of graphs in other ways
        assert now == page, "If what the tour prints now is right, run pytest --bless."
