"""What backends of ``torch.compile`` take on a CPU: data sheets as ``keel bench --calibrate`` measures them, on one
core of an Intel Xeon of the Sapphire Rapids generation.  Other machines, and GPUs, have other figures.
"""

import torch

from keel import Cost

FLOPS = {torch.float32: 1.4e11, torch.float64: 6.5e10, torch.bfloat16: 1.1e12, torch.float16: 1.3e11}

SHEETS = {
    "inductor": Cost(
        flops=FLOPS,
        scalars=8.5e9,
        bandwidth=2.6e10,
        launch=5.5e-6,
        call=9.5e-7,
        fuses=True,
        weights={
            "aten.exp": 2.8,
            "aten.log": 5.2,
            "aten.tanh": 13,
            "aten.erf": 4.6,
            "aten.sigmoid": 3.5,
            "aten.sin": 2.5,
            "aten.sqrt": 2,
            "aten.pow": 22,
            "aten._softmax": 5.9,
            "reduction": 0.19,
            "scan": 6.7,
            "sort": 18,
            "random": 69,
            "shape": 3.4,
            "indexing": 1.8,
            "aten.max_pool2d_with_indices": 8.1,
            "depthwise convolution": 1.5,
            "depthwise convolution backward": 23,
            "grouped convolution": 1.9,
        },
        passes={
            "convolution": 2.2,
            "pointwise convolution": 1.9,
            "depthwise convolution": 2,
            "convolution backward": 9.6,
            "pointwise convolution backward": 4.6,
        },
        border=1.8,
        doubt=0.15,
    ),
    "openvino": Cost(  # which computes products in bfloat16
        flops={torch.float32: 6.2e11, torch.float64: 6.2e11, torch.bfloat16: 1.1e12, torch.float16: 6.2e11},
        scalars=1.6e9,
        bandwidth=1.7e10,
        launch=8.8e-5,
        call=2e-6,
        weights={
            "aten.exp": 0.1,
            "aten.log": 0.1,
            "aten.tanh": 0.1,
            "aten.erf": 0.56,
            "aten.sigmoid": 0.32,
            "aten.sin": 0.36,
            "aten.sqrt": 0.1,
            "aten.pow": 4.6,
            "aten._softmax": 0.62,
            "reduction": 0.1,
            "scan": 0.72,
            "sort": 3.7,
            "random": 4.8,
            "shape": 0.45,
            "indexing": 0.51,
            "aten.bmm": 3,
            "aten.max_pool2d_with_indices": 6.5,
            "convolution": 4.4,
            "pointwise convolution": 4.7,
            "depthwise convolution": 7.3,
            "convolution backward": 4.6,
            "pointwise convolution backward": 5.2,
            "depthwise convolution backward": 100,
            "grouped convolution": 12,
        },
        passes={
            "convolution": 3.2,
            "pointwise convolution": 1.7,
            "depthwise convolution": 2.9,
            "convolution backward": 3.6,
            "pointwise convolution backward": 3.2,
        },
        copies=2.2,
        doubt=0.5,
    ),
}
