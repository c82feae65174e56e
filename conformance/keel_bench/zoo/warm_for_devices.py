"""Imported by the server that processes of the zoo on a device are forked from: it imports, and wakes no device."""

from __future__ import annotations

import gc
import warnings

import torch

from keel_conformance.devices import force_ieee
from keel_conformance.harness import preload  # noqa: F401  (a first graph is traced)

from ..models import model_zoo

torch.set_num_threads(1)  # a pool of threads does not survive a fork
force_ieee()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for model in ("bert", "resnet18", "AlbertForMaskedLM"):  # of both libraries that models come from
        model_zoo.build(model)
gc.collect()
