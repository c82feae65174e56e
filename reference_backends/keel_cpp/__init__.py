"""A loop-level backend: C++ for the CPU, vectorized and on all threads."""

from keel import Limits, LoopTarget, aten_externs, loop_backend
from keel.cache import package_fingerprint
from keel_cpp.build import build, compile_code, load_code
from keel_cpp.cost_model import COST
from keel_cpp.op_table import DTYPES, REDUCTIONS, SCALARS
from keel_cpp.probe import cpu, probe
from keel_cpp.render import render

# The renderer splits a reduction at the top of a kernel into chunks, so the scheduler does not have to.
LIMITS = Limits(atomics=frozenset({"add", "min", "max", "mul"}), vector=16, pieces=64)

target = LoopTarget(
    name="cpp",
    device="cpu",
    dtypes=DTYPES,
    scalars=SCALARS,
    reductions=REDUCTIONS,
    render=render,
    build=build,
    compile=compile_code,
    load=load_code,
    checks=True,
    concurrent=True,
    externs=aten_externs("cpu", DTYPES),
    limits=LIMITS,
    suffix="cpp",
    probe=probe,
    cost=COST,
    fingerprint=lambda: package_fingerprint("keel_cpp") + cpu(),
)
backend = loop_backend(target)

__all__ = ["backend", "target"]
