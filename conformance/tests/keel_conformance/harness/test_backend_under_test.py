"""A backend is found by a text, and a wrong text is answered with the nearest names."""

from __future__ import annotations

from pathlib import Path

import faulty_backends
import pytest
import torch

import keel
import keel_eager
from keel import KeelError
from keel_conformance.certificate import hashes
from keel_conformance.harness.backend_under_test import load_backend
from keel_conformance.repro import script, write_scripts


def test_an_installed_backend_is_found() -> None:
    found = load_backend("eager")
    assert found.backend is keel_eager.backend and found.with_eager == [keel_eager.backend] and found.device == "cpu"


def test_damaged_metadata_of_another_package_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_bytes(b"Name: \xff\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("pytest\n")
    (info / "entry_points.txt").write_bytes(b"[keel.backends]\nlone\n\xff\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_backend.__wrapped__("eager").backend is keel_eager.backend
    assert not write_scripts._registered("eager")
    assert script.backend_of("eager").single == '"eager"'
    assert hashes.plugin("eager")["distribution"] == "torch-keel"
    assert hashes.plugin("pytest:main")["distribution"] == "pytest"


def test_a_value_is_found() -> None:
    found = load_backend("faulty_backends:well")
    assert (
        found.backend is faulty_backends.well
        and found.with_eager == [faulty_backends.well, "eager"]
        and found.name == "well"
    )


def test_a_backend_of_torch_compile_is_found() -> None:
    found = load_backend("aot_eager")
    assert found.name == "aot_eager" and load_backend("aot_eager") is found
    call = torch.ops.aten.neg.default, (torch.ones(3),), {}
    batch = keel.testing.compile_calls([call], backends=found.with_eager, strict=True)
    assert batch.owners == (frozenset({"aot_eager"}),)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("aot_eagre", "'aot_eager'"),
        ("inductr", "'inductor'"),
        ("faulty_backends:wel", "'well'"),
        ("no_such_module:x", "No module"),
    ],
)
def test_a_wrong_text_is_answered(text: str, near: str) -> None:
    with pytest.raises(KeelError, match="unknown-backend") as raised:
        load_backend(text)
    assert near in str(raised.value)
