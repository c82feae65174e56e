"""Backends with one defect each, by name, so that any process can make them again.

``planted:plugin.scaled.rank3.aten.mul.Tensor`` is a plugin that takes graphs and scales the results of one operator
that have three dimensions. ``extern`` has the defect in a library call of a loop target, ``compiler`` has it in one
too, but only if the target optimizes, and ``rendering.scaled.exp`` has it in a scalar operation of each kernel. With
``right_`` in front, the same backend has no defect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from keel import Backend, Extern, LoopTarget, Rule, Support, loop_backend
from keel.loops import Apply, Const, Kernel, Stmt
from keel.plugin import Option
from keel.testing import find
from keel_selftest.mutants.loop_kernels import Values, rewritten
from keel_selftest.rewiring import run, run_eager

from .wrong_calls import CHANGES, Change

RIGHT = "right_"
HOST = "cpp"
"""The loop target that has the defects."""


class Place:
    """The backends of a stage, by attributes: the change, and the place of the defect."""

    def __init__(self, depth: int, make: Callable[..., Backend], path: tuple[str, ...] = ()) -> None:
        self.depth, self.make, self.path = depth, make, path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = (*self.path, name)
        return self.make(*path) if len(path) == self.depth else Place(self.depth, self.make, path)


def is_at(result: Any, where: str) -> bool:
    """True if a result is at the place ``where``: ``rank3`` for three dimensions, ``any`` for all."""
    first = result[0] if isinstance(result, tuple | list) and result else result
    return where == "any" or (isinstance(first, Tensor) and where == f"rank{first.dim()}")


def changed(call: Callable[..., Any], change: Change, where: str) -> Callable[..., Any]:
    """A function whose results are changed if they are at the place ``where``."""

    def wrong(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        return change(result) if is_at(result, where) else result

    return wrong


def backend_with_plugin_defect(change: Change | None, where: str, operator: str) -> Backend:
    """A backend that runs graphs in eager PyTorch, but for calls of one operator."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            result = run_eager(node, args, kwargs)
            is_planted = change is not None and str(node.target) == operator and is_at(result, where)
            return change(result) if is_planted and change is not None else result

        return lambda *inputs: tuple(run(gm, inputs, do))

    return Backend(name="planted", device="cpu", supports=Support((Rule(ops=("*",)),)), compile=compile)


def loop_target() -> LoopTarget:
    """The target that has the defects, under a name of its own."""
    target = find(HOST).target
    assert target is not None
    return replace(target, name="planted", fingerprint=None, cost=None)


def backend_with_extern_defect(change: Change | None, where: str, operator: str) -> Backend:
    """A loop-level backend with a defect in a library call."""
    target = loop_target()
    if change is None:
        return loop_backend(target)
    return loop_backend(replace(target, externs=with_extern(target, change, where, operator)))


def with_extern(target: LoopTarget, change: Change, where: str, operator: str) -> dict[str, Extern]:
    """The library calls of a target, of which one is wrong."""
    known = target.externs[operator]
    run = changed(known.run, change, where)

    def out(*args: Any, out: Tensor) -> Any:
        return out.copy_(run(*args))

    wrong = replace(known, run=run, out=None if known.out is None else out, packed=None)
    return {**target.externs, operator: wrong}


def backend_with_compiler_defect(change: str, scalar: str, *, is_right: bool = False) -> Backend:
    """A loop-level backend whose compiler has a defect from level 1 on."""
    target = loop_target()
    render = target.render

    def rendered(kernel: Kernel, ctx: Any) -> str:
        is_wrong = ctx.options.get("level", 1) > 0 and not is_right
        return render(with_wrong_scalar(kernel, change, scalar) if is_wrong else kernel)

    level = Option(name="level", type=int, default=1, sentence="How far kernels are optimized.", choices=(0, 1))
    return loop_backend(replace(target, render=rendered, options=(*target.options, level)))


def backend_with_rendering_defect(change: str, scalar: str, *, is_right: bool = False) -> Backend:
    """A loop-level backend that renders a scalar operation wrongly."""
    target = loop_target()
    if is_right:
        return loop_backend(target)
    render = target.render
    return loop_backend(replace(target, render=lambda kernel: render(with_wrong_scalar(kernel, change, scalar))))


def with_wrong_scalar(kernel: Kernel, change: str, scalar: str) -> Kernel:
    """The kernel with each use of a scalar operation on floats changed."""
    return rewritten(
        kernel, lambda stmt, values: SCALAR_CHANGES[change](stmt, values) if fits(stmt, scalar) else (stmt,)
    )


def fits(stmt: Stmt, scalar: str) -> bool:
    """True if a statement is a use of the scalar operation on floats."""
    return isinstance(stmt, Apply) and stmt.op == scalar and stmt.dtype in (torch.float32, torch.float64)


def scaled(stmt: Stmt, values: Values) -> Iterable[Stmt]:
    """The result is too large by three percent."""
    return _then(stmt, values, "mul", 1.03)


def moved(stmt: Stmt, values: Values) -> Iterable[Stmt]:
    """The result is too large by a quarter."""
    return _then(stmt, values, "add", 0.25)


def limited(stmt: Stmt, values: Values) -> Iterable[Stmt]:
    """The result is at most an eighth."""
    return _then(stmt, values, "minimum", 0.125)


def missing(stmt: Stmt, values: Values) -> Iterable[Stmt]:
    """The result is NaN."""
    return _then(stmt, values, "add", float("nan"))


def _then(stmt: Stmt, values: Values, op: str, number: float) -> tuple[Stmt, ...]:
    assert isinstance(stmt, Apply)
    right, by = values.new(), values.new()
    return (
        replace(stmt, result=right),
        Const(by, number, stmt.dtype),
        Apply(stmt.result, op, (right, by), stmt.dtype),
    )


SCALAR_CHANGES: Mapping[str, Any] = {f.__name__: f for f in (scaled, moved, limited, missing)}
SCALAR_KINDS: Mapping[str, str] = {"scaled": "wrong", "moved": "wrong", "limited": "wrong", "missing": "nan"}


def _of_operator(make: Callable[[Change | None, str, str], Backend], is_right: bool) -> Place:
    def made(change: str, where: str, *operator: str) -> Backend:
        return make(None if is_right else CHANGES[change], where, ".".join(operator))

    return Place(5, made)


def _of_scalar(make: Callable[..., Backend], is_right: bool) -> Place:
    return Place(2, lambda change, scalar: make(change, scalar, is_right=is_right))


STAGES: Mapping[str, Callable[[bool], Place]] = {
    "plugin": lambda is_right: _of_operator(backend_with_plugin_defect, is_right),
    "extern": lambda is_right: _of_operator(backend_with_extern_defect, is_right),
    "rendering": lambda is_right: _of_scalar(backend_with_rendering_defect, is_right),
    "compiler": lambda is_right: _of_scalar(backend_with_compiler_defect, is_right),
}


def __getattr__(name: str) -> Place:
    stage = name.removeprefix(RIGHT)
    if stage not in STAGES:
        raise AttributeError(name)
    return STAGES[stage](name.startswith(RIGHT))
