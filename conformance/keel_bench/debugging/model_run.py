"""A process that runs a model of the zoo: for the places where defects can be planted, or to see whether one shows."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor, fx

from keel import Backend, Extern, Rule, Support, loop_backend
from keel.loops import Apply, Kernel, walk
from keel.opset import MEMBERS
from keel.plugin import CompileContext, with_context
from keel_selftest.rewiring import run as call_nodes
from keel_selftest.rewiring import run_eager

from .planted import fits, loop_target
from .zoo_factories import TRAINING, made

FILES: Mapping[str, tuple[str, ...]] = {
    "decomposition": ("spec/ops/*.py",),
    "lowering": ("loops/lower/*.py",),
    "fusion": ("schedule/fuse.py", "schedule/match_loops.py", "schedule/horizontal_fusion.py"),
    "runtime": ("schedule/memory_plan.py", "runtime/launch_builder.py", "runtime/launch_reuse.py"),
}
"""The files of Keel's own stages."""
FAR = 1e-3
"""A result that is off by this much of its size is wrong for certain."""
FAINT = 1e-2
"""A result this much smaller than the largest one may be rounding errors alone, such as the gradient of a bias of keys:
its size counts as this much of the largest.
"""


def places(model: str) -> dict[str, Any]:
    """The calls of a model as plugins get them, the library calls of a loop target, and the scalar operations of its
    kernels. A call has the number of dimensions of its result.
    """
    calls, externs, scalars = set[str](), set[str](), set[str]()
    takes_all = Support((Rule(ops=("*",)),))
    run(model, [Backend(name="planted", device="cpu", supports=takes_all, compile=_noting(calls))])
    target = loop_target()

    def rendered(kernel: Kernel) -> str:
        scalars.update(s.op for s in walk(kernel.body) if isinstance(s, Apply) and fits(s, s.op))
        return str(target.render(kernel))

    noted = {name: _noted(name, extern, externs) for name, extern in target.externs.items()}
    run(model, [loop_backend(replace(target, render=rendered, externs=noted))])
    return {"calls": sorted(calls), "externs": sorted(externs), "scalars": sorted(scalars)}


def lines(model: str) -> dict[str, Any]:
    """The lines of Keel's stages that run when a model is compiled for a loop target."""
    ran = dict[str, set[int]]()
    backend = loop_backend(loop_target())

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        with_context(backend.compile, ctx)(gm)
        return lambda *inputs: tuple(gm.forward(*inputs))

    with traced(ran):
        run(model, [replace(backend, compile=compile)])
    return {path: sorted(numbers) for path, numbers in sorted(ran.items())}


def _noting(calls: set[str]) -> Callable[..., Any]:
    """A ``compile`` whose parts run in eager PyTorch and note the calls with new tensors of floats."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            result = run_eager(node, args, kwargs)
            _note(calls, str(node.target), result, args)
            return result

        return lambda *inputs: tuple(call_nodes(gm, inputs, do))

    return compile


def _noted(name: str, extern: Extern, calls: set[str]) -> Extern:
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = extern.run(*args, **kwargs)
        _note(calls, name, result, args)
        return result

    return replace(extern, run=noted, out=None, packed=None)


def _note(calls: set[str], name: str, result: Any, args: Sequence[Any]) -> None:
    first = result[0] if isinstance(result, tuple | list) and result else result
    if not isinstance(first, Tensor) or not first.is_floating_point() or not name.startswith("aten."):
        return
    memory = first.untyped_storage().data_ptr()
    if all(x.untyped_storage().data_ptr() != memory for x in tensors_in(list(args))):
        calls.add(f"{name} {first.dim()}")


def source_root() -> Path:
    """The folder of Keel's source."""
    spec = find_spec("keel")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@contextmanager
def traced(lines: dict[str, set[int]]) -> Iterator[None]:
    """Notes which lines of the files of stages run."""
    root = source_root()
    known = {str(p): str(p.relative_to(root)) for globs in FILES.values() for g in globs for p in root.glob(g)}

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        lines.setdefault(known[frame.f_code.co_filename], set()).add(frame.f_lineno)
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if _is_traced(frame.f_code) else None

    def _is_traced(code: CodeType) -> bool:
        if known.get(code.co_filename, "").startswith("spec"):
            return code in decompositions
        return code.co_filename in known and code.co_name not in ("<module>", "<lambda>", "<genexpr>")

    made_of = (f for op in MEMBERS.values() for f in (op.decompose, *op.forms.values()))
    decompositions = {f.__code__ for f in made_of if isinstance(f, FunctionType)}

    threading.settrace(call)
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)


def run(model: str, backends: Sequence[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The results of a model in eager PyTorch and compiled, with gradients if it trains."""
    torch.compiler.reset()
    both = []
    for is_compiled in (False, True):
        fn, args, kwargs = made(model)
        options: Any = {"backends": [*backends, "eager"], "strict": True, "placement": "order"}
        called = torch.compile(fn, backend="keel", options=options, dynamic=False) if is_compiled else fn
        torch.manual_seed(0)
        if model.endswith(TRAINING):
            called(*args, **kwargs).backward()
            both.append([p.grad for p in fn.parameters() if p.grad is not None])
        else:
            with torch.no_grad():
                both.append(tensors_in(called(*args, **kwargs)))
    return both[0], both[1]


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a result."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in tensors_in(v)]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, tuple | list) else []


def shows(model: str, backend: str) -> str:
    """How a model fails: ``raises``, ``wrong``, or '' if it does not."""
    module, _, path = backend.partition(":")
    value: Any = import_module(module) if path else backend
    for name in path.split(".") if path else ():
        value = getattr(value, name)
    try:
        right, results = run(model, [value])
    except Exception as e:
        return "" if isinstance(e, AttributeError | ImportError | SyntaxError) else "raises"
    return "wrong" if are_off(right, results) else ""


def are_off(right: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """True if one of the results is far from the right one."""
    largest = max((_mean(x) for x in right if x.is_floating_point()), default=0.0)
    return any(_is_off(x, y, FAINT * largest) for x, y in zip(right, results, strict=True))


def _mean(x: Tensor) -> float:
    """The root of the mean square of the elements."""
    return float(x.detach().double().norm()) / sqrt(max(x.numel(), 1))


def _is_off(right: Tensor, result: Tensor, least: float) -> bool:
    if right.shape != result.shape or right.dtype != result.dtype:
        return True
    error = _mean(result.double() - right.double())
    return not error <= FAR * max(_mean(right), least if right.is_floating_point() else 0.0)


def main(words: Sequence[str]) -> None:
    """Prints what was asked for as JSON: ``places MODEL``, ``lines MODEL`` or ``shows MODEL BACKEND``."""
    warnings.simplefilter("ignore")
    ask, model, *rest = words
    answers = {"places": places, "lines": lines, "shows": lambda *names: {"kind": shows(*names)}}
    answer = answers[ask](model, *rest)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
