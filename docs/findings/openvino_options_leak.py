"""openvino keeps the options of one compiled model for all later ones that are given none."""

import sys

import openvino.torch  # noqa: F401
import torch
from openvino.frontend.pytorch.torchdynamo import backend

torch.compile(lambda x: (x + 1) * 2, backend="openvino", options={"aot_autograd": True})(torch.ones(2))
torch.compiler.reset()
seen = []
keep = backend._get_aot_autograd
backend._get_aot_autograd = lambda options: seen.append(options) or keep(options)
torch.compile(lambda x: (x + 3) * 4, backend="openvino")(torch.ones(2))
print("expected options None")
print("found    options", seen[-1])
sys.exit(1 if seen[-1] else 0)
