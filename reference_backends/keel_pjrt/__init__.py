"""PJRT as a graph-level backend: a part becomes StableHLO by JAX's lowering, which any PJRT plugin compiles."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from torch import fx

from keel import Backend
from keel.cache import package_fingerprint
from keel.plugin import Arithmetic, CompileContext, Option, PreparedConstants
from keel_pjrt.cost_model import COST
from keel_pjrt.rows import refuses

OPTIONS = (
    Option(name="platform", type=str, default="cpu", sentence="The PJRT platform that compiles and runs parts."),
    Option(
        name="precision",
        type=str,
        default="highest",
        choices=("default", "high", "highest"),
        sentence="How precisely float32 matrix products and convolutions are computed.",
    ),
)
FLUSHED = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def probe() -> str | None:
    return None if find_spec("jax") else "It needs jax: pip install 'torch-keel[pjrt]'."


def compile(gm: fx.GraphModule, ctx: CompileContext) -> PreparedConstants | Callable[..., Any]:
    """Compiles a part. Raises what JAX or XLA raises if it does not take the program."""
    from keel_pjrt.executables import compile_part

    return compile_part(gm, ctx.constants, ctx.options)


def fingerprint() -> str:
    """This package, and the libraries that it compiles with."""
    return "\n".join([package_fingerprint("keel_pjrt"), version("jax"), version("jaxlib")])


backend = Backend(
    name="pjrt",
    device="cpu",
    supports=refuses,
    compile=compile,
    probe=probe,
    static=True,
    any_layout=True,
    cost=COST,
    arithmetic=Arithmetic(flushes_subnormals=FLUSHED),
    options=OPTIONS,
    fingerprint=fingerprint,
)
