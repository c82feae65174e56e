"""The search for the first bad nightly, and what is installed together with a nightly."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest

from keel_bench import nightlies
from keel_bench.nightlies import between, first_bad, note

VERSIONS = [f"2.16.0.dev202611{day:02}+cpu" for day in range(1, 31)]


@pytest.mark.parametrize("bad", range(1, 30))
def test_the_first_bad_nightly_is_found_in_few_trials(bad: int) -> None:
    trials: list[str] = []

    def verdict(version: str) -> bool:
        trials.append(version)
        return VERSIONS.index(version) < bad

    assert first_bad(VERSIONS, verdict) == (VERSIONS[bad - 1], VERSIONS[bad])
    assert len(trials) <= 5


@pytest.mark.parametrize("unknown", [{10}, {14, 15}, set(range(11, 20)), set(range(1, 29))])
def test_nightlies_that_cannot_be_judged_are_named(unknown: set[int]) -> None:
    sentence = note(VERSIONS, lambda v: None if (i := VERSIONS.index(v)) in unknown else i < 15)
    good = max(i for i in range(15) if i not in unknown)
    bad = min(i for i in range(15, 30) if i not in unknown)
    assert sentence.startswith(f"{VERSIONS[bad]} is the first bad nightly; {VERSIONS[good]} is good.")
    assert all((VERSIONS[i] in sentence) == (good <= i <= bad) for i in range(30))


def test_ends_that_are_not_as_said() -> None:
    assert "is not good. Start with an earlier day." in note(VERSIONS, lambda v: False)
    assert note(VERSIONS, lambda v: True) == f"{VERSIONS[-1]}, the newest one, is not bad."


def test_nightlies_of_days() -> None:
    mixed = ["2.15.0", "2.16.0.dev20261103", "2.16.0.dev20261101+cpu", "2.16.0.dev20261030"]
    assert between(mixed, date(2026, 11, 1), date(2026, 11, 30)) == ["2.16.0.dev20261101+cpu", "2.16.0.dev20261103"]


def test_what_is_installed_beside_a_nightly() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    found = nightlies.requirements(project)
    assert {"numpy", "typer", "scipy", "pytest>=8", "pytest-xdist"} <= {*found}
    assert not [r for r in found if r.startswith(("torch>", "torch=", "torch-keel"))] and len(found) == len({*found})


def test_a_nightly_is_judged_by_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightlies, "install", lambda version, folder: None)
    for status, verdict in ((0, True), (1, False), (125, None)):
        assert nightlies.judged("v", [sys.executable, "-c", f"raise SystemExit({status})"]) is verdict

    def fails(version: str, folder: Path) -> None:
        raise subprocess.CalledProcessError(1, ["pip"])

    monkeypatch.setattr(nightlies, "install", fails)
    assert nightlies.judged("v", ["true"]) is None


def test_a_whole_search(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(nightlies, "listed", lambda: VERSIONS[::-1])
    monkeypatch.setattr(nightlies, "judged", lambda version, command: version < VERSIONS[20])
    assert nightlies.main(["--since", "2026-11-01", "--until", "2026-11-30", "--", "make", "check"]) == 0
    assert capsys.readouterr().out == f"{VERSIONS[20]} is the first bad nightly; {VERSIONS[19]} is good.\n"
    assert nightlies.main(["--since", "2026-12-01", "--until", "2026-12-02", "--", "true"]) == 1
