"""What the C++ target takes on a CPU: a data sheet measured by ``keel bench --calibrate`` on one core of an Intel Xeon
of the Sapphire Rapids generation.  Other machines have other figures; calibrate there."""
import torch

from keel import Cost

FLOPS = {torch.float32: 1.4e11, torch.float64: 6.5e10, torch.bfloat16: 1.1e12, torch.float16: 1.3e11}

COST = Cost(
    flops=FLOPS, scalars=8.5e9, bandwidth=2.7e10, launch=1.5e-6, call=1.9e-6, fuses=True,
    weights={
        "aten.exp": 2.0, "aten.log": 2.9, "aten.tanh": 3.1, "aten.erf": 3.8, "aten.sigmoid": 3.3, "aten.sin": 13.6,
        "aten.sqrt": 1.9, "aten.pow": 25, "aten._softmax": 4.2, "reduction": 0.2, "scan": 15, "sort": 16,
        "random": 21, "shape": 2.3, "indexing": 1.3, "grouped convolution": 2.4, "depthwise convolution": 2.8,
    },
    passes={"depthwise convolution": 4.0})
