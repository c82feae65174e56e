"""What help says of the commands of other packages, which it reads and never runs."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer

from keel.claims import claims_of
from keel.command_help import summary
from keel.command_line import GROUP, SPEC_GROUP


@pytest.mark.slow
@pytest.mark.parametrize("group", [GROUP, SPEC_GROUP])
def test_mounted_commands_are_listed_by_what_they_say_themselves(group: str) -> None:
    for name, [point] in claims_of(group).items():
        said = typer.main.get_command(point.load()).help
        assert said and summary(point) == " ".join(said.partition("\n\n")[0].split()), name


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "def run(): ...",
        "import typer\napp = typer.Typer()\n@other.command()\ndef run():\n    'Says.'\n",
        "@app.command()\ndef run(): ...",
        "not Python",
        "x = " + "(" * 1000,
    ],
)
def test_a_command_whose_source_says_nothing(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    if text is not None:
        (tmp_path / "zeta_silent.py").write_text(text)
    for value in ("zeta_silent:app", "zeta_silent.inner:app", "zeta_silent", "no entry point"):
        assert summary(EntryPoint("zeta", value, GROUP)) is None


def test_what_a_command_says_is_read_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "zeta_loud" / "inner"
    inner.mkdir(parents=True)
    for package in (inner, inner.parent):
        (package / "__init__.py").write_text("raise SystemExit\n")
    (inner / "cli.py").write_text("raise SystemExit\n@app.command('x')\ndef run():\n    'Says\\n  it.\\n\\nMore.'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert summary(EntryPoint("zeta", "zeta_loud.inner.cli:app", GROUP)) == "Says it."
