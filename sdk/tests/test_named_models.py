"""Backends that a command line names."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from keel import Backend
from keel.errors import KeelError
from keel.named_models import backend_named, program_of


def test_installed_names_stay_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "minify"))
    assert backend_named("cpp") == "cpp"
    assert isinstance(backend_named("planted:right"), Backend)


@pytest.mark.parametrize(("text", "why"), [("planted:none", "has no attribute|no backend"), ("keel:errors", "module")])
def test_others_are_refused(text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "minify"))
    with pytest.raises(KeelError, match=why):
        backend_named(text)


@pytest.mark.parametrize("member", ["none.txt", "archive_format", "a/archive_format", "a/version"])
def test_a_damaged_program_is_refused(member: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "pt2")
    with pytest.raises(KeelError, match="cannot be loaded") as raised:
        program_of(str(path))
    assert raised.value.code == "bad-option"
