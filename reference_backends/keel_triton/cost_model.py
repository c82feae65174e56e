"""The data sheet of the Triton target, measured on an NVIDIA H200 with PyTorch 2.11 and Triton 3.6. ``keel bench
--calibrate FILE --backend triton --device cuda`` measures the GPU at hand.
"""

import torch

from keel import Cost

COST = Cost(
    flops={torch.float32: 5.1e13, torch.float64: 6.1e13, torch.bfloat16: 8.8e14, torch.float16: 8.6e14},
    scalars=1.4e12,
    bandwidth=4.3e12,
    launch=4.2e-6,
    call=9.3e-6,
    fuses=True,
    weights={
        "aten.exp": 1.8,
        "aten.log": 1.9,
        "aten.tanh": 1.9,
        "aten.erf": 1.9,
        "aten.sigmoid": 1.9,
        "aten.sin": 1.9,
        "aten.sqrt": 1.9,
        "aten.pow": 3.1,
        "aten._softmax": 1.8,
        "reduction": 0.49,
        "scan": 4.9,
        "sort": 5.2,
        "random": 1.4,
        "shape": 2.2,
        "indexing": 1.7,
        "aten.bmm": 0.28,
        "aten.max_pool2d_with_indices": 1.2,
        "convolution": 0.79,
        "pointwise convolution": 0.2,
        "depthwise convolution": 15,
        "convolution backward": 1.1,
        "pointwise convolution backward": 0.21,
        "depthwise convolution backward": 26,
        "grouped convolution": 3.4,
    },
    passes={
        "pointwise convolution": 1.2,
        "depthwise convolution": 3.2,
        "pointwise convolution backward": 2.2,
        "depthwise convolution backward": 6,
    },
    doubt=0.27,
)
