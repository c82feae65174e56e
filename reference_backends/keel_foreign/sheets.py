"""What backends of ``torch.compile`` take on a CPU: data sheets as ``keel bench --calibrate`` measures them, on one
core of an Intel Xeon of the Sapphire Rapids generation.  Other machines, and GPUs, have other figures."""
import torch

from keel import Cost

FLOPS = {torch.float32: 1.4e11, torch.float64: 6.5e10, torch.bfloat16: 1.1e12, torch.float16: 1.3e11}

SHEETS = {
    "inductor": Cost(
        flops=FLOPS, scalars=8.5e9, bandwidth=2.6e10, launch=5.5e-6, call=9.5e-7, fuses=True,
        weights={
            "aten.exp": 2.5, "aten.log": 4.3, "aten.tanh": 13.4, "aten.erf": 4.9, "aten.sigmoid": 4.0,
            "aten.sin": 3.1, "aten.sqrt": 2.5, "aten.pow": 22, "aten._softmax": 5.1, "reduction": 0.2, "scan": 7.5,
            "sort": 17, "random": 62, "shape": 3.5, "pointwise convolution": 1.6, "grouped convolution": 2.9,
            "depthwise convolution": 3.6,
        },
        passes={"depthwise convolution": 4.5}),
    "openvino": Cost(
        flops=FLOPS, scalars=1.6e9, bandwidth=1.4e10, launch=8e-5, call=2e-6,
        weights={
            "aten.exp": 0.1, "aten.log": 0.4, "aten.tanh": 0.1, "aten.erf": 0.7, "aten.sigmoid": 0.6, "aten.sin": 0.4,
            "aten.sqrt": 0.1, "aten.pow": 3.9, "aten._softmax": 0.5, "reduction": 0.1, "scan": 0.8, "sort": 8.8,
            "random": 4.1, "shape": 0.3,
        }),
}
