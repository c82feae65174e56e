"""What keeps a tag from being released."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel_bench import releasable


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0, 2026-12-01\n\n## 0.1.0, unreleased\n")
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").touch()
    return tmp_path


def test_a_checkout_that_is_ready(checkout: Path) -> None:
    assert [*releasable.faults(checkout, "v0.2.0")] == []


def test_what_is_wrong_is_said(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0, unreleased\n")
    (checkout / "changelog.d" / "opencl.added.md").touch()
    assert [*releasable.faults(checkout, "v0.3.0")] == [
        "The tag is v0.3.0, but pyproject.toml has the version 0.2.0.",
        "The first section of CHANGELOG.md is not that of 0.2.0 with its day: run make release.",
        "The fragment opencl.added.md is not in CHANGELOG.md: run make release.",
    ]


@pytest.mark.parametrize(("lock", "status"), [([], 0), (["The lock is not that of the declarations."], 1)])
def test_the_exit_status(
    lock: list[str], status: int, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(releasable, "ROOT", checkout)
    monkeypatch.setattr(releasable, "changed_lock", lambda: lock)
    assert releasable.main(["v0.2.0"]) == status
    assert capsys.readouterr().out.splitlines() == (lock or ["v0.2.0 can be released."])
