"""A loop-level backend: OpenCL C, for any device that has a driver. The device has memory of its own."""

import torch

from keel import Limits, LoopTarget, loop_backend
from keel.cache import package_fingerprint
from keel.plugin import Arithmetic
from keel_opencl.build import compile_code, load_code
from keel_opencl.op_table import TABLES
from keel_opencl.opencl_devices import KNOWN, OPTIONS, device, identity, memory, probe
from keel_opencl.render import render


def fingerprint() -> str:
    """This package, and the driver of the device."""
    first = device()
    return package_fingerprint("keel_opencl") + ("" if first is None else identity(first))


target = LoopTarget(
    name="opencl",
    device="cpu",
    dtypes=TABLES.dtypes,
    scalars=TABLES.scalars,
    reductions={},
    render=render,
    compile=compile_code,
    load=load_code,
    memory=memory,
    limits=Limits(
        max_buffers=32,
        atomics=frozenset({"add", "mul", "min", "max"}),
        atomic_dtypes=TABLES.atomics,
        vector=16,
        parallel=4096,
    ),
    arithmetic=Arithmetic(flushes_subnormals=() if KNOWN.subnormals else (torch.float32,), float64=KNOWN.doubles),
    options=OPTIONS,
    suffix="cl",
    probe=probe,
    fingerprint=fingerprint,
)
backend = loop_backend(target)

__all__ = ["backend", "target"]
