"""An import changes nothing in the process but what it is for."""

from __future__ import annotations

import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from keel.quarantine import contained

CHANGES = {
    "the current folder": lambda: os.chdir("/"),
    "signal handlers": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "environment variables": lambda: os.environ.pop("PATH"),
    "sys.stderr": lambda: setattr(sys, "stderr", None),
    "sys.excepthook": lambda: setattr(sys, "excepthook", print),
    "the recursion limit": lambda: sys.setrecursionlimit(12345),
    "the garbage collector": lambda: gc.set_threshold(1, 2, 3),
    "sys.path": sys.path.clear,
    "the mode of new files": lambda: os.umask(0o777),
    "logging": lambda: logging.basicConfig(level=logging.DEBUG, force=True),
    "how processes are started": lambda: multiprocessing.set_start_method("spawn", force=True),
    "Python's random numbers": lambda: random.seed(0),
    "NumPy's random numbers": lambda: np.random.seed(0),
    "NumPy's errors": lambda: np.seterr(all="raise"),
    "PyTorch's random numbers": lambda: torch.manual_seed(1),
    "PyTorch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "PyTorch's default device": lambda: torch.set_default_device("meta"),
    "PyTorch's gradient mode": lambda: torch.set_grad_enabled(False),
    "PyTorch's autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "PyTorch's detection of anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "PyTorch's subnormal numbers": lambda: torch.set_flush_denormal(True),
    "PyTorch's threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "PyTorch's deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "PyTorch's precision of products": lambda: torch.set_float32_matmul_precision("medium"),
}


def state() -> list[object]:
    return [
        os.getcwd(),
        signal.getsignal(signal.SIGINT),
        os.environ.get("PATH"),
        sys.stderr,
        sys.stdout,
        sys.excepthook,
        sys.getrecursionlimit(),
        gc.isenabled(),
        gc.get_threshold(),
        sys.path[:],
        mode_of_new_files(),
        logging.root.level,
        logging.root.handlers[:],
        multiprocessing.get_start_method(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        np.geterr(),
        torch.is_autocast_enabled("cpu"),
        torch.is_anomaly_enabled(),
        (torch.tensor([2.0**-126]) / 2).tolist(),
        torch.get_rng_state().tolist(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        warnings.filters[:],
        locale.setlocale(locale.LC_ALL),
    ]


def mode_of_new_files() -> int:
    mode = os.umask(0)
    os.umask(mode)
    return mode


@pytest.mark.parametrize("words", CHANGES)
def test_a_setting_is_put_back_and_named(words: str) -> None:
    before = state()
    with contained() as found:
        CHANGES[words]()
    assert state() == before and found.notes == [words]


def test_the_garbage_collector_runs_again() -> None:
    with contained() as found:
        gc.disable()
    assert gc.isenabled() and found.notes == ["the garbage collector"]


def test_a_closed_stream_is_open_again(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    stream = open(2, "w", closefd=False)  # noqa: SIM115 the package closes it
    monkeypatch.setattr(sys, "__stderr__", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    with contained() as found:
        print("Acme SDK 3")
        sys.stdout.close()  # which is the stream of errors here
    print("no card", file=sys.stderr, flush=True)
    assert found.notes == ["closed standard streams"] and capfd.readouterr().err == "Acme SDK 3\nno card\n"


def test_no_default_device_is_left_where_there_was_none() -> None:
    with contained():
        torch.set_default_device("meta")
    assert torch._C._len_torch_function_stack() == 0  # a default is a mode, which each call goes through


def test_it_is_put_back_after_an_exception_too() -> None:
    before = state()
    with pytest.raises(SystemExit), contained():
        torch.set_grad_enabled(False)
        raise SystemExit(1)
    assert state() == before


def test_what_is_printed_and_warned_of_troubles_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with contained() as found:
        print("Acme SDK 3")
        warnings.warn("soon gone", DeprecationWarning, stacklevel=1)
        warnings.simplefilter("error")
        handler = logging.StreamHandler(sys.stdout)  # what it keeps goes on working
    assert handler.stream is sys.stderr
    printed = capsys.readouterr()
    assert printed.out == "" and "Acme SDK 3" in printed.err and found.notes == []


def test_a_package_may_add_variables_and_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("ACME_HOME", "")
    monkeypatch.delenv("ACME_HOME")
    with contained() as found:
        os.environ["ACME_HOME"] = "/opt/acme"
        sys.path.append(str(tmp_path))
    assert os.environ["ACME_HOME"] == "/opt/acme" and str(tmp_path) in sys.path and found.notes == []
