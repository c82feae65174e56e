"""``scheduled(fn, *args)``: the schedules that a loop target makes of a function's graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

import keel
import keel_interp
from keel.loop_level import compile_part, refuse, schedule_part
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule


@pytest.fixture
def scheduled() -> Callable[..., list[Schedule]]:
    def make(fn, *args, limits=keel_interp.target.limits, externs=None, alone=False, dynamic=False, tolerance=None):
        """Compiles ``fn``, runs it (and its backward pass, if an argument wants one) and compares with eager.

        ``externs`` are in addition to the interpreter's, or, with ``alone``, all that there are. ``tolerance`` is
        relative to the largest element, for results that nearly cancel.
        """
        torch.compiler.reset()
        known = {} if alone else keel_interp.target.externs
        target = dataclasses.replace(keel_interp.target, limits=limits, externs={**known, **(externs or {})})
        found: list[Schedule] = []

        def compile(gm):
            found.append(schedule_part(target, gm))
            return compile_part(target, gm)

        backend = keel.Backend(name="probe", device="cpu", supports=lambda call: refuse(target, call), compile=compile)
        compiled = keel.compile(fn, backends=[backend], strict=True, dynamic=dynamic)
        results, expected = run(compiled, args), run(fn, args)
        limit = None
        if tolerance is not None:
            limit = tolerance * max(1.0, *(float(t.abs().max()) for t in expected if t.numel()))
        torch.testing.assert_close(results, expected, equal_nan=True, rtol=tolerance, atol=limit)
        return found

    return make


def run(fn, args):
    args = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    results = fn(*args)
    results = list(results) if isinstance(results, tuple) else [results]
    wanted = [a for a in args if a.requires_grad]
    if wanted:
        results += torch.autograd.grad(sum(r.square().sum() for r in results), wanted)
    return [r.detach() for r in results]


@pytest.fixture
def text() -> Callable[[list[Schedule]], str]:
    def of(schedules):
        steps = [s for schedule in schedules for s in schedule.steps]
        return (
            "\n\n".join(str(s.kernel) if isinstance(s, KernelLaunch) else f"library call: {s.name}" for s in steps)
            + "\n"
        )

    return of
