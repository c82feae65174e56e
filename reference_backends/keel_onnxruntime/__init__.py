"""ONNX Runtime as a graph-level backend: a compiler of its own, which packs the weights of a model once."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, cast

import torch
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
DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
"""PyTorch's dtypes by name. A name from a file is not looked up in ``torch``, which imports modules by attribute."""


def probe() -> str | None:
    is_here = find_spec("onnx") and find_spec("onnxruntime") and tuple(map(int, _version().split(".")[:2])) >= (1, 32)
    return None if is_here else "It needs onnx, and onnxruntime 1.32 or newer: pip install 'torch-keel[onnxruntime]'."


def _version() -> str:
    """That of the library. Distributions of several names bring it."""
    import onnxruntime

    return str(onnxruntime.__version__)


def compile(gm: fx.GraphModule, ctx: CompileContext) -> PreparedConstants:
    """Compiles a part. Raises what ONNX Runtime raises if it does not take the model."""
    from keel_onnxruntime.onnx_graph import onnx_model
    from keel_onnxruntime.sessions import open_session

    like = [(y.meta["val"].dtype, tuple(y.meta["val"].shape)) for y in cast(Any, gm.graph.output_node().args[0])]
    open_session(onnx_model(gm, EMITTERS), {**ctx.options, "level": "DISABLE_ALL"}, {})
    return _part(onnx_model(gm, EMITTERS, ctx.constants), like, ctx)


def _part(model: bytes, like: list[tuple[torch.dtype, tuple[int, ...]]], ctx: CompileContext) -> PreparedConstants:
    from keel_onnxruntime.sessions import open_session, run_session

    return PreparedConstants(partial(open_session, model, ctx.options), partial(run_session, like))


def serialize(part: PreparedConstants) -> bytes:
    """A line with the types of the results, and the model without its weights, as a file of ONNX."""
    prepare, run = cast(tuple["partial[Any]", "partial[Any]"], (part.prepare, part.run))
    (model, _), (like,) = prepare.args, run.args
    types = [(str(dtype).removeprefix("torch."), shape) for dtype, shape in like]
    return b"\n".join([json.dumps(types).encode(), model])


def deserialize(data: bytes, ctx: CompileContext) -> PreparedConstants:
    """The part that ``serialize`` was given. Nothing is translated again, and weights are packed in the first call."""
    types, _, model = data.partition(b"\n")
    return _part(model, [(DTYPES[dtype], tuple(shape)) for dtype, shape in json.loads(types)], ctx)


def fingerprint() -> str:
    """This package, and the libraries that it builds and runs models with."""
    return "\n".join([package_fingerprint("keel_onnxruntime"), version("onnx"), _version()])


backend = Backend(
    name="onnxruntime",
    device="cpu",
    supports=SUPPORT,
    compile=compile,
    probe=probe,
    any_layout=True,
    options=OPTIONS,
    fingerprint=fingerprint,
    serialize=serialize,
    deserialize=deserialize,
)
