"""What eager PyTorch takes on a CPU: a data sheet measured by ``keel bench --calibrate`` on one core of an Intel Xeon
of the Sapphire Rapids generation.  Other machines have other figures; calibrate there."""
import torch

from keel import Cost

FLOPS = {torch.float32: 1.4e11, torch.float64: 6.5e10, torch.bfloat16: 1.1e12, torch.float16: 1.3e11}

COST = Cost(
    flops=FLOPS, scalars=6.5e9, bandwidth=2.5e10, launch=2e-7, call=1.9e-6,
    weights={
        "aten.exp": 1.2, "aten.log": 1.5, "aten.tanh": 1.8, "aten.erf": 3.7, "aten.sigmoid": 2.4, "aten.sin": 2.5,
        "aten.sqrt": 1.5, "aten.pow": 16, "aten._softmax": 3.6, "reduction": 0.3, "scan": 4.2, "sort": 12,
        "random": 16, "shape": 2.1, "indexing": 2.9, "grouped convolution": 2.5, "depthwise convolution": 2.9,
    },
    passes={"depthwise convolution": 4.1})
