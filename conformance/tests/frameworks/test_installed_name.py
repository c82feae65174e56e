"""``torch.compile`` finds a plugin by its name, in a program that imports neither Keel nor the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from keel.new import new

from .snippets import snippets

[CODE] = snippets("# Use a backend in training frameworks")
TOLD = """
import sys
assert "keel_acme" in sys.modules
torch.testing.assert_close(fast(torch.ones(2, 8)), model(torch.ones(2, 8)))
assert all(p.grad is not None for p in model.parameters())
"""


def installed(folder: Path) -> Path:
    """A package of ``keel new`` named acme, in a folder as pip would install it."""
    package = new("acme", "graph", folder / "acme")
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    info = package / "keel_acme-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = ((g, *(f"{n} = {v}" for n, v in points.items())) for g, points in project["entry-points"].items())
    (info / "entry_points.txt").write_text("\n".join("\n".join((f"[{g}]", *lines)) for g, *lines in groups))
    return package


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    path = os.pathsep.join([str(installed(tmp_path)), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error::keel.KeelWarning", "-c", CODE + TOLD],
        env={**os.environ, "PYTHONPATH": path, "KEEL_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
