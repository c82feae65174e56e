"""The Triton loop target: NVIDIA GPUs, by the same kernels that every loop target gets."""
from __future__ import annotations

from keel import Limits, LoopTarget
from keel_triton.build import build
from keel_triton.externs import EXTERNS
from keel_triton.probe import probe
from keel_triton.render import render
from keel_triton.tables import DTYPES, REDUCTIONS, SCALARS

# A thousand rows fill the machine, each a block of threads; a thread likes to load four floats at a time.
LIMITS = Limits(max_buffers=64, max_rank=8, atomics=frozenset({"add"}), vector=4, parallel=1024)

target = LoopTarget(name="triton", device="cuda", dtypes=DTYPES, scalars=SCALARS, reductions=REDUCTIONS, render=render,
                    build=build, externs=EXTERNS, limits=LIMITS, suffix="py", probe=probe)
