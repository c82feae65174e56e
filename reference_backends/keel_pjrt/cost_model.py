"""What XLA takes on a CPU: a data sheet measured by ``keel bench --calibrate`` with one thread of an AMD EPYC that had
other load. Other machines, and other PJRT platforms, have other figures; calibrate there.
"""

import torch

from keel import Cost

COST = Cost(
    flops={torch.float32: 2.2e11, torch.float64: 9.5e10, torch.bfloat16: 2.2e11, torch.float16: 2e11},
    scalars=1.6e9,
    bandwidth=3e10,
    launch=4.6e-5,
    call=4e-7,
    fuses=True,
    weights={
        "aten.exp": 0.6,
        "aten.log": 0.73,
        "aten.tanh": 0.57,
        "aten.erf": 0.55,
        "aten.sigmoid": 0.65,
        "aten.sin": 6.4,
        "aten.sqrt": 0.41,
        "aten.pow": 5.7,
        "reduction": 0.28,
        "scan": 2.9,
        "sort": 8.3,
        "shape": 0.27,
        "indexing": 1.1,
        "aten.bmm": 1.7,
        "aten.max_pool2d_with_indices": 2.3,
        "pointwise convolution": 2.3,
        "depthwise convolution": 64,
        "convolution backward": 1.3,
        "pointwise convolution backward": 3.1,
        "depthwise convolution backward": 92,
        "grouped convolution": 12,
    },
    passes={
        "convolution": 6,
        "pointwise convolution": 1.9,
        "depthwise convolution": 59,
        "convolution backward": 11,
        "pointwise convolution backward": 3.9,
        "depthwise convolution backward": 67,
    },
    doubt=0.33,
)
