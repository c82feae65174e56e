"""What is assumed of a backend without a data sheet that shares a graph with a backend of last resort.

The assumption is small on purpose. By it, the cheapest placement takes at most as long as all of the graph on the last
resort. If the backend is in truth only as fast as the last resort, the same placement takes at most ``GAIN`` times as
long, because no time by the assumed sheets is less than the true time divided by ``GAIN``.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from keel.cost.sheet import Cost

GAIN = 1.1
"""How many times as fast as the last resort a backend without a data sheet is assumed to be."""
PASSES = 0.5
"""How often a tensor that changes its backend is assumed to pass through memory on each of the two."""

ACCELERATOR = Cost(
    flops={torch.float32: 2e13, torch.float64: 1e12, torch.float16: 1e14, torch.bfloat16: 1e14},
    scalars=2e11,
    bandwidth=1e12,
    call=5e-6,
)
"""PyTorch's kernels on a device other than the host: the rates of a GPU of the middle class, and the time of a launch.
"""


def assumed_sheets(last_resort: Cost, device: str, *, fuses: bool) -> tuple[Cost, Cost]:
    """The sheets that are assumed of a backend without one, and of the last resort, for tensors on this type of device.

    On a CPU, the rates are those of the data sheet of the last resort, elsewhere ``ACCELERATOR``'s. To enter a part
    takes as long as a call, on both backends. ``fuses`` is true of a backend that fuses loops.
    """
    slow = last_resort if device == "cpu" else ACCELERATOR
    slow = replace(slow, launch=slow.call, copies=PASSES, doubt=0.0)
    fast = replace(
        slow,
        flops={dtype: GAIN * rate for dtype, rate in slow.flops.items()},
        scalars=GAIN * slow.scalars,
        bandwidth=GAIN * slow.bandwidth,
        call=slow.call / GAIN,
        copies=GAIN * PASSES,
        fuses=fuses,
    )
    return fast, slow
