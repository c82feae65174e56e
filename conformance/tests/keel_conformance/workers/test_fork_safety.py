"""Processes that others are forked from start no device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from keel_conformance.workers.fork_safety import no_device_init

WARM = """
import os
import torch

def asked() -> bool:
    assert os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") == "1", "this starts CUDA"
    return False

torch.cuda.is_available = asked
import keel_conformance.harness.preload
print(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
"""


def test_to_trace_in_advance_starts_no_device() -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTORCH_NVML_BASED_CUDA_CHECK"}
    done = subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


def test_what_a_user_has_set_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    with pytest.raises(KeyError), no_device_init():
        assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
        raise KeyError
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "0"
