"""Each error code has a page, and the example on it raises what the page says."""
from __future__ import annotations

import linecache
import re
import sys
from pathlib import Path

import pytest
import torch

from keel import KeelError
from keel.errors import CODES

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```\n\nraises\n\n```\n(?P<message>.*?)^```", re.MULTILINE | re.DOTALL)


def test_each_code_has_a_page_and_a_line_in_the_index() -> None:
    assert {p.stem for p in PAGES.glob("*.md")} == {*CODES, "README"}
    assert tuple(re.findall(r"^\* \[([\w-]+)\]\(\1\.md\)", (PAGES / "README.md").read_text(), re.MULTILINE)) == CODES


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")   # of torch.export, for itself
@pytest.mark.parametrize("code", CODES)
def test_the_example_raises_what_the_page_says(code: str, request: pytest.FixtureRequest,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGES / f"{code}.md"
    found = EXAMPLE.search(page.read_text())
    assert found is not None
    error = raised_by(found["code"], monkeypatch)
    assert error.code == code
    message, wanted = shown(error), found["message"].rstrip("\n")
    if wanted.endswith("..."):                                # what follows is long, or a toolchain's word
        assert message.startswith(wanted.removesuffix("...")), message
    elif request.config.getoption("--bless"):
        page.write_text(page.read_text().replace(found.group(), found.group().replace(
            f"```\n{found['message']}```", f"```\n{message}\n```")))
    else:
        assert message == wanted


def raised_by(code: str, monkeypatch: pytest.MonkeyPatch) -> KeelError:
    """What the example raises, run as a file of its own so that messages can point at its lines."""
    torch.compiler.reset()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "keel_acme", raising=False)
    monkeypatch.setitem(linecache.cache, "example.py", (len(code), None, code.splitlines(True), "example.py"))
    with pytest.raises(KeelError) as caught:
        exec(compile(code, "example.py", "exec"), {"__name__": "example"})
    return caught.value


def shown(error: KeelError) -> str:
    """The message, with no more backends in it than Keel's own."""
    return re.sub(r"installed: .*", "installed: cpp, eager, inductor, interp, triton", str(error))


def test_a_message_has_what_reasons_where_and_what_to_do() -> None:
    error = KeelError("no-owner", "no backend takes it.", {"acme": "acme is shut."}, "model.py:1   y = x", "Open acme.")
    assert str(error) == ("KeelError[no-owner]: no backend takes it.\n  acme: acme is shut.\n  at model.py:1   y = x\n"
                          "Open acme.")
    assert str(KeelError("bad-text", "No.")) == "KeelError[bad-text]: No."
