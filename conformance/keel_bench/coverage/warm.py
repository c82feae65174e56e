"""Imported by the server that processes are forked from: what takes time once is done here, before they are."""

from __future__ import annotations

import gc

import torch

from keel import universe
from keel_conformance.workers.fork_safety import MODES, without_devices

from .jobs import Job
from .measure import work

torch.set_num_threads(1)  # a pool of threads does not survive a fork
without_devices()
for name in ("nn.functional.linear", "softmax"):
    for mode in MODES:
        work(Job("interp", name, mode, samples=1), lambda doing: None)
universe.names()
gc.collect()
