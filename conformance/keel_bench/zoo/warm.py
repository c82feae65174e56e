"""Imported by the server that processes of the zoo are forked from: what takes time once is done here, before they are.

So neither Keel nor ``aot_eager`` pays in a measurement for what PyTorch sets up on its first use.
"""

from __future__ import annotations

import gc
import warnings

import torch

from keel import universe
from keel_conformance.workers.fork_safety import MODES, without_devices

from ..jobs import Job
from ..models import model_zoo
from . import compile_time

torch.set_num_threads(1)  # a pool of threads does not survive a fork
without_devices()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for model in ("bert", "resnet18"):  # of both libraries that models come from
        for mode in ("inference", "training") if "training" in MODES else ("inference",):
            compile_time.measure(Job("zoo-compile", model, "cpp", mode, along="static"))
    model_zoo.build("AlbertForMaskedLM")
    universe.names()  # what it imports may look for devices: not after a fork
torch.compiler.reset()
gc.collect()
