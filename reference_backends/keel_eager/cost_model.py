"""What eager PyTorch takes on a CPU: a data sheet measured by ``keel bench --calibrate`` on one core of an Intel Xeon
of the Sapphire Rapids generation.  Other machines have other figures; calibrate there.
"""

import torch

from keel import Cost

FLOPS = {torch.float32: 1.4e11, torch.float64: 6.5e10, torch.bfloat16: 1.1e12, torch.float16: 1.3e11}

COST = Cost(
    flops=FLOPS,
    scalars=6.5e9,
    bandwidth=2.5e10,
    launch=2e-7,
    call=1.9e-6,
    weights={
        "aten.exp": 1.5,
        "aten.log": 1.7,
        "aten.tanh": 2.2,
        "aten.erf": 3.5,
        "aten.sigmoid": 2.6,
        "aten.sin": 2.6,
        "aten.sqrt": 1.1,
        "aten.pow": 17,
        "aten._softmax": 4.3,
        "reduction": 0.37,
        "scan": 4.8,
        "sort": 14,
        "random": 20,
        "shape": 2.3,
        "indexing": 3.6,
        "aten.max_pool2d_with_indices": 24,
        "depthwise convolution": 1.1,
        "depthwise convolution backward": 21,
        "grouped convolution": 2.4,
    },
    passes={
        "convolution": 4.1,
        "pointwise convolution": 1.8,
        "depthwise convolution": 4.8,
        "convolution backward": 10,
        "pointwise convolution backward": 5,
    },
    doubt=0.31,
)
