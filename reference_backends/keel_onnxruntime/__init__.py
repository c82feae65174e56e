"""ONNX Runtime as a graph-level backend: a compiler of its own, which packs the weights of a model once."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from torch import fx

from keel import Backend
from keel.cache import package_fingerprint
from keel.plugin import CompileContext, Option, PreparedConstants
from keel_onnxruntime.onnx_operators import EMITTERS, SUPPORT

LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")
OPTIONS = (
    Option(name="level", type=str, default=LEVELS[-1], choices=LEVELS, sentence="How far graphs are optimized."),
    Option(name="threads", type=int, default=0, sentence="How many threads run a part; 0 for as many as PyTorch has."),
    Option(name="provider", type=str, default="CPUExecutionProvider", sentence="What runs the operators."),
)


def probe() -> str | None:
    lacking = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    return f"It needs {' and '.join(lacking)}: pip install 'torch-keel[onnxruntime]'." if lacking else None


def compile(gm: fx.GraphModule, ctx: CompileContext) -> PreparedConstants:
    """Compiles a part. Raises what ONNX Runtime raises if it does not take the model."""
    from keel_onnxruntime.onnx_graph import onnx_model
    from keel_onnxruntime.sessions import open_session, run_session

    results: Any = gm.graph.output_node().args[0]
    open_session(onnx_model(gm, EMITTERS), {**ctx.options, "level": "DISABLE_ALL"}, {})
    prepare = partial(open_session, onnx_model(gm, EMITTERS, ctx.constants), ctx.options)
    return PreparedConstants(prepare, partial(run_session, [node.meta["val"] for node in results]))


def fingerprint() -> str:
    """This package, and the libraries that it builds and runs models with."""
    return "\n".join([package_fingerprint("keel_onnxruntime"), version("onnx"), version("onnxruntime")])


backend = Backend(
    name="onnxruntime",
    device="cpu",
    supports=SUPPORT,
    compile=compile,
    probe=probe,
    any_layout=True,
    options=OPTIONS,
    fingerprint=fingerprint,
)
