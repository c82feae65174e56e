"""A loop-level backend: Triton for NVIDIA GPUs."""

from keel import Limits, LoopTarget, aten_externs, loop_backend
from keel_triton.build import build, warm_up
from keel_triton.cost_model import COST
from keel_triton.cubin_launchers import load_code
from keel_triton.cubins import compile_code
from keel_triton.op_table import ATOMIC_ADD, DTYPES, REDUCTIONS, SCALARS
from keel_triton.probe import fingerprint, probe
from keel_triton.render import render

# A thousand rows with a block of threads each fill the GPU, or a thousand strips of sixteen columns. A thread should
# load four floats at a time.
LIMITS = Limits(atomics=frozenset({"add"}), atomic_dtypes=ATOMIC_ADD, vector=4, parallel=1024, columns=16)

target = LoopTarget(
    name="triton",
    device="cuda",
    dtypes=DTYPES,
    scalars=SCALARS,
    reductions=REDUCTIONS,
    render=render,
    build=build,
    compile=compile_code,
    load=load_code,
    checks=True,
    arena=False,
    writes_pinned=True,
    externs=aten_externs("cuda"),
    limits=LIMITS,
    suffix="py",
    probe=probe,
    cost=COST,
    warm_up=warm_up,
    fingerprint=fingerprint,
)
backend = loop_backend(target)

__all__ = ["backend", "target"]
