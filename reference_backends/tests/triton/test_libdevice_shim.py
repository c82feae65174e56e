"""What the rendered kernels compute, without a GPU: Triton's interpreter against PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.skipif(
    Version(version("triton")) < Version("3.7") and Version(version("numpy")) >= Version("2.4"),
    reason="Triton 3.6's interpreter cannot loop to a runtime bound with NumPy 2.4 and later",
)


def test_kernels_through_the_interpreter(tmp_path: Path) -> None:
    outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    env = {**outer, "TRITON_INTERPRET": "1", "KEEL_CACHE_DIR": str(tmp_path)}
    inner = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:randomly",
        str(Path(__file__).with_name("interpreted.py")),
    ]
    run = subprocess.run(inner, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert " passed" in run.stdout and " skipped" not in run.stdout
