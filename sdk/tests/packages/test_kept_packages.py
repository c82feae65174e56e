"""Packages that earlier versions wrote are loaded, and compute what they did."""

from __future__ import annotations

import platform
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import keel
from keel import Backend, KeelError
from keel.discovery import find

FOLDER = Path(__file__).parent / "kept"
MADE = runpy.run_path(str(FOLDER / "make.py"))


def elsewhere() -> Backend:
    """The backend on a machine that lacks what its machine code needs."""

    def load(objects: Any, sources: Any) -> Any:
        raise KeelError("not-here", "The kernels do not run here.", {"cpp": "This processor is another one."})

    backend = find("cpp")
    assert backend.target is not None
    return replace(backend, target=replace(backend.target, load=load))


@pytest.mark.parametrize("recompile", [False, True])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.keel")), ids=lambda path: path.stem)
def test_a_kept_package_is_loaded(path: Path, recompile: bool) -> None:
    if not recompile and platform.machine() != "x86_64":
        pytest.skip("Its machine code is for x86-64.")
    backends = [elsewhere(), "eager"] if recompile else None
    loaded = keel.load_package(path, trusted=True, recompile=recompile, backends=backends)
    model = MADE["model"]()
    for calls, n in ((1, 4), (2, 3)):
        x = MADE["arguments"](n)
        with torch.no_grad():
            probabilities, rest, _, rows = model(x)
        result = loaded(x, scale=2)
        torch.testing.assert_close(result[0], probabilities)
        torch.testing.assert_close(result[1], rest)
        assert result[2] == calls and result[3] == rows == n + 1


def test_a_package_of_each_format_is_kept() -> None:
    assert [path.stem for path in sorted(FOLDER.glob("*.keel"))] == ["format-1"]
