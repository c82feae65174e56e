"""Runs the tests in ``on_device``, each file in a process of its own.

A test that reads the device's memory from the host ends its process, and so fails here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(p.name for p in (HERE / "on_device").glob("test_*.py"))
SECONDS = 900

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FILES)
def test_on_the_device(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    settings = {
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]),
        "KEEL_PRIVATEUSE1_TESTS": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",  # where there is CUDA, PyTorch pins memory for CUDA alone
    }
    done = subprocess.run(
        [*command, "-m", "not whole_zoo", str(HERE / "on_device" / name)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
