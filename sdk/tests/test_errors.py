"""Each error code has a page, and the example on it raises what the page says."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import keel
from keel import KeelError
from keel.errors import CODES

PAGES = Path(__file__).parents[2] / "docs" / "errors"
EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```\n\nraises\n\n```\n(?P<message>.*?)^```", re.MULTILINE | re.DOTALL)


def test_each_code_has_a_page_and_a_line_in_the_index() -> None:
    assert {p.stem for p in PAGES.glob("*.md")} == {*CODES, "README"}
    assert tuple(re.findall(r"^\* \[([\w-]+)\]\(\1\.md\)", (PAGES / "README.md").read_text(), re.MULTILINE)) == CODES


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of torch.export, for itself
@pytest.mark.parametrize("code", CODES)
def test_the_example_raises_what_the_page_says(
    code: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGES / f"{code}.md"
    found = EXAMPLE.search(page.read_text())
    assert found is not None
    error = raised_by(found["code"], monkeypatch)
    assert error.code == code
    message, wanted = shown(error), found["message"].rstrip("\n")
    if wanted.endswith("..."):  # what follows is long, or a toolchain's word
        assert message.startswith(wanted.removesuffix("...")), message
    elif request.config.getoption("--bless"):
        page.write_text(
            page.read_text().replace(
                found.group(), found.group().replace(f"```\n{found['message']}```", f"```\n{message}\n```")
            )
        )
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
    assert str(error) == (
        "KeelError[no-owner]: no backend takes it.\n  acme: acme is shut.\n  at model.py:1   y = x\nOpen acme."
    )
    assert str(KeelError("bad-text", "No.")) == "KeelError[bad-text]: No."


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def chooses(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def here(text: str) -> str:
    return re.sub(r"\S*test_errors\.py:\d+", "test_errors.py:LINE", text)


def test_a_part_that_raises_when_it_runs(golden: Callable[..., None]) -> None:
    def breaks(*args: torch.Tensor) -> None:
        raise TimeoutError("the device does not answer")

    torch.compiler.reset()
    acme = keel.Backend(name="acme", device="cpu", supports=lambda call: None, compile=lambda gm: breaks)
    with pytest.raises(TimeoutError) as caught:
        keel.compile(lambda x: x.relu() + 1, backends=[acme])(torch.ones(3))
    golden(here("\n".join([f"{type(caught.value).__name__}: {caught.value}", *caught.value.__notes__])))


def test_an_error_of_the_model_itself_keeps_its_type() -> None:
    torch.compiler.reset()
    with pytest.raises(IndexError, match="out of range in self") as caught:
        keel.compile(torch.nn.functional.embedding, backends=["eager"])(torch.tensor([7]), torch.ones(3, 2))
    assert "which eager compiled" in caught.value.__notes__[-1]


def test_control_flow_that_data_decide_breaks_the_graph_or_is_pytorchs_error(golden: Callable[..., None]) -> None:
    torch.compiler.reset()
    x = torch.ones(3)
    torch.testing.assert_close(keel.compile(branches, backends=["eager"])(x), x + 1)
    torch.compiler.reset()
    with pytest.raises(Exception, match="Data-dependent branching") as caught:
        keel.compile(branches, backends=["eager"], fullgraph=True)(x)
    golden(f"{type(caught.value).__name__}: {str(caught.value).strip().splitlines()[0]}")


def test_control_flow_as_an_operator_is_an_operator_like_others(golden: Callable[..., None]) -> None:
    torch.compiler.reset()
    x = torch.ones(3)
    torch.testing.assert_close(keel.compile(chooses, backends=["eager"], fullgraph=True)(x), x + 1)
    acme = keel.Backend(
        name="acme",
        device="cpu",
        compile=lambda gm: gm.forward,
        supports=keel.Support((keel.Rule(ops=("aten.sum", "aten.gt", "aten.add", "aten.sub")),)),
    )
    torch.compiler.reset()
    with pytest.raises(KeelError) as caught:
        keel.compile(chooses, backends=[acme], strict=True)(x)
    golden(here(re.sub(r"%\w*graph\w*", "%GRAPH", str(caught.value))))


def test_a_message_neither_steers_a_terminal_nor_fails_to_be_written() -> None:
    said = str(KeelError("bad-file", "a\x1b[31m\x00\r\x9b\u202e\u2066\ud800 ü\t漢 😀\n"))
    assert said == "KeelError[bad-file]: a\\x1b[31m\\x00\\r\\x9b\\u202e\\u2066\\ud800 ü\t漢 😀\n"
    said.encode()
