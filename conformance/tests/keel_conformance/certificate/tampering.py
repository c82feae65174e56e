"""A backend that computes nothing right, and one that is eager PyTorch."""

from __future__ import annotations

import torch

from keel import Backend, Rule, Support

ALL = Support((Rule(ops=("*",)),))
dishonest = Backend(
    name="dishonest",
    device="*",
    supports=ALL,
    compile=lambda gm: lambda *inputs: tuple(torch.zeros_like(x) for x in gm.forward(*inputs)),
)
honest = Backend(name="honest", device="*", supports=ALL, compile=lambda gm: lambda *inputs: gm.forward(*inputs))
