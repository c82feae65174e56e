"""The cases as pytest tests, in a repository of somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def tried(folder: Path, *, backend: str, in_process: bool, more: str = "") -> str:
    (folder / "test_conformance.py").write_text("from keel_conformance.suite import *  # noqa: F403\n")
    (folder / "pytest.ini").write_text(
        f"[pytest]\nkeel_backend = {backend}\nkeel_ops = neg\nkeel_in_process = {str(in_process).lower()}\n{more}"
    )
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfsx", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE), "COLUMNS": "200"},
    )
    assert not said.stderr, said.stderr
    return said.stdout


def test_what_is_not_claimed_is_skipped(tmp_path: Path) -> None:
    said = tried(tmp_path, backend="faulty_backends:refuses", in_process=False)
    assert "not claimed: refuses: refuses takes nothing." in said and "failed" not in said, said


def test_cases_are_named_by_their_ids_and_waivers_are_held_to(tmp_path: Path) -> None:
    (tmp_path / "waivers.toml").write_text(
        '[[waiver]]\ncase = "neg/*"\nclause = "oracle:exact"\nreason = "zeros"\nurl = "https://example.com"\n'
        'owner = "ada"\nexpires = 2099-01-01\n[[waiver]]\ncase = "abs/*"\nclause = "abs.C1"\nreason = "old"\n'
        'url = "https://example.com"\nowner = "ada"\nexpires = 2020-01-01\n'
    )
    said = tried(tmp_path, backend="faulty_backends:zeros", in_process=True, more="keel_waivers = waivers.toml\n")
    assert "XFAIL test_conformance.py::test_conforms[neg/f" in said and "has expired on 2020-01-01." in said, said
