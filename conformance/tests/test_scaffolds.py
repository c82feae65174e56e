"""What ``keel new`` renders conforms as it is rendered.

Tier smoke takes minutes, so a part of it runs here: for the loop level every kernel, which its tables and its printer
are judged by; for the graph level the operators that it takes.  ``make scaffolds`` runs the whole tier on both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What each level is judged by here, as options of ``keel conform``.
ARITHMETIC = [option for op in ("mm", "bmm", "mul", "add", "neg", "exp", "tanh") for option in ("--op", op)]
PARTS = {
    "graph": [*ARITHMETIC, "--op", "aliases-*", "--op", "layouts-*"],
    "loop": ["--op", "kernel-*", "--op", "bitwise_*", "--op", "fma"],
}


@pytest.mark.parametrize("level", PARTS)
def test_a_rendered_backend_conforms(level: str, tmp_path: Path) -> None:
    folder, keel = tmp_path / "package", [sys.executable, "-m", "keel.cli"]
    subprocess.run([*keel, "new", f"{level}_zeta", "--level", level, "--dir", str(folder)], check=True)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    out = tmp_path / "run"
    done = subprocess.run(
        [
            *keel,
            "conform",
            "--backend",
            f"keel_{level}_zeta:backend",
            "--tier",
            "smoke",
            "--out",
            str(out),
            "--minimize",
            "0",
            *PARTS[level],
        ],
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, "KEEL_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    totals = {row["status"]: row["cases"] for row in json.loads((out / "report.json").read_text())["totals"]}
    assert totals["pass"] >= {"graph": 10, "loop": 100}[level]
