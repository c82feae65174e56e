"""The data sheet of the C++ target, measured by ``keel bench --calibrate`` on one core of an Intel Xeon (Sapphire
Rapids). Calibrate on other machines.
"""

import torch

from keel import Cost

FLOPS = {torch.float32: 1.4e11, torch.float64: 6.5e10, torch.bfloat16: 1.1e12, torch.float16: 1.3e11}

COST = Cost(
    flops=FLOPS,
    scalars=8.5e9,
    bandwidth=2.7e10,
    launch=1.5e-6,
    call=1.9e-6,
    fuses=True,
    weights={
        "aten.exp": 2.2,
        "aten.log": 3.1,
        "aten.tanh": 3.5,
        "aten.erf": 3.7,
        "aten.sigmoid": 3.2,
        "aten.sin": 14,
        "aten.sqrt": 1.9,
        "aten.pow": 24,
        "aten._softmax": 4.8,
        "reduction": 0.19,
        "scan": 17,
        "sort": 17,
        "random": 23,
        "shape": 2.7,
        "indexing": 1.6,
        "aten.max_pool2d_with_indices": 7,
        "depthwise convolution": 1.1,
        "depthwise convolution backward": 22,
        "grouped convolution": 2.4,
    },
    passes={
        "convolution": 4.5,
        "pointwise convolution": 2.6,
        "depthwise convolution": 5,
        "convolution backward": 10,
        "pointwise convolution backward": 4.7,
    },
    doubt=0.22,
)
