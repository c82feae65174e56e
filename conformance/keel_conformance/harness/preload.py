"""Imported by the server that processes are forked from: what takes seconds once is done here, before they are."""

from __future__ import annotations

import gc
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import keel
import keel_foreign  # noqa: F401  (it belongs to what processes need)

from ..devices import force_ieee
from ..workers.fork_safety import no_device_init
from . import backend_worker, judge_worker, scheduler  # noqa: F401

torch.set_num_threads(1)  # a pool of threads does not survive a fork
force_ieee()


def _first() -> None:
    """A first graph is traced and run by eager PyTorch, which imports much of PyTorch."""
    x = torch.ones(3)
    batch = keel.testing.compile_calls([(torch.ops.aten.neg.default, (x,), {})], backends=["eager"], strict=True)
    with TemporaryDirectory() as folder:
        torch.save(batch.run([((x,), {})]), Path(folder) / "results")
        torch.load(Path(folder) / "results", weights_only=True)


with no_device_init():
    _first()
gc.collect()
