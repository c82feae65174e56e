"""openvino's results require no gradient: a compiled model cannot be trained, and a mixed one silently is not."""

import sys

import openvino.torch  # noqa: F401
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
x = torch.randn(5, 3)
found = torch.compile(model, backend="openvino")(x)
print("expected requires_grad", model(x).requires_grad)
print("found    requires_grad", found.requires_grad)
sys.exit(0 if found.requires_grad else 1)
