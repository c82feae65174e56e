"""Processes that others are forked from start no device."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

from keel_conformance.workers.forks import no_devices

WARM = """
import os
import torch

def asked() -> bool:
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == "", "this starts CUDA"
    return False

torch.cuda.is_available = asked
import keel_conformance.harness.warm
"""


def test_to_trace_in_advance_starts_no_device() -> None:
    done = subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_devices_are_hidden_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    before = dict(os.environ)
    with pytest.raises(KeyError), no_devices():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        raise KeyError
    assert dict(os.environ) == before
