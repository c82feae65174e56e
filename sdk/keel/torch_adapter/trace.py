"""Traces a callable without Dynamo, and computes sizes for which the trace is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch

from keel.torch_adapter.capture import Compiler, capture
from keel.torch_adapter.sympy_expressions import backed_values


def trace(
    fn: Callable[..., Any], inputs: Sequence[torch.Tensor], compiler: Compiler, *, dynamic: bool = False
) -> Callable[..., Any]:
    """Captures ``fn``, which takes these tensors and returns a tuple of tensors, without Dynamo. Traces a forward and a
    backward graph if an input requires a gradient and gradients are enabled, else an inference graph. The backward
    graph may be traced when it is first needed. ``dynamic`` makes every size but 0 and 1 a symbol. PyTorch's errors
    while tracing are raised unchanged.
    """
    # Importing these takes longer than importing torch.
    from torch._dynamo.source import ConstantSource
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    sizes = ShapeEnv(
        assume_static_by_default=not dynamic, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
    )
    mode = FakeTensorMode(shape_env=sizes, allow_non_fake_inputs=True)
    with tracing(TracingContext(mode)):
        fakes = [
            mode.from_tensor(x, static_shapes=not dynamic, source=ConstantSource(f"x{i}")) for i, x in enumerate(inputs)
        ]
        return capture(_Program(fn), fakes, compiler)  # type: ignore[arg-type]


class _Program(torch.nn.Module):
    """A function in the form that AOTAutograd takes."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.fn(*inputs)


def assignments(mode: Any, symbols: Sequence[sympy.Symbol], most: int = 4) -> list[Mapping[sympy.Symbol, int]]:
    """Yields values of the size symbols for which all guards of a trace hold. The values it was traced with come first.
    ``mode`` is the trace's fake mode. A data-dependent size gets any value in its range that fulfills the trace's
    assertions.
    """
    sizes = mode.shape_env
    guards = [g.expr for g in sizes.guards] + [a.expr for of in sizes.deferred_runtime_asserts.values() for a in of]

    def admitted(values: Mapping[sympy.Symbol, int]) -> bool:
        return all(g.subs(values) != sympy.false for g in guards)

    starts = ({s: _value(sizes, s, late) for s in symbols} for late in (5, 3, 2, 1, 0))
    hints = next(filter(admitted, starts), {s: _value(sizes, s, 5) for s in symbols})
    tried_values: list[Mapping[sympy.Symbol, int]] = [hints]
    for step in (1, 2, 3, 4, 6, 8, 12, 24, -1, -2):
        for near in (_shifted(sizes, hints, step), _scaled(sizes, hints, abs(step) + 1)):
            if len(tried_values) < most and near not in tried_values and admitted(near):
                tried_values.append(near)
    return tried_values


def _value(sizes: Any, symbol: sympy.Symbol, late: int) -> int:
    """The value while tracing. A data-dependent size gets the value in its range that is closest to ``late``."""
    known = backed_values(sizes)
    return int(known[symbol]) if symbol in known else _within(sizes, symbol, late)


def _within(sizes: Any, symbol: sympy.Symbol, value: int) -> int:
    reach = sizes.var_to_range.get(symbol)
    if reach is None:
        return value
    low, high = (int(b) if b.is_finite and abs(b) < 2**40 else None for b in (reach.lower, reach.upper))
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


def _shifted(sizes: Any, hints: Mapping[sympy.Symbol, int], step: int) -> dict[sympy.Symbol, int]:
    return {s: _within(sizes, s, v + step * (i + 1)) for i, (s, v) in enumerate(hints.items())}


def _scaled(sizes: Any, hints: Mapping[sympy.Symbol, int], times: int) -> dict[sympy.Symbol, int]:
    return {s: _within(sizes, s, v * times) for s, v in hints.items()}


def aot_alone(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Runs AOTAutograd alone on Dynamo's graph, without decompositions and without compiling. It is the baseline for
    Keel's own share of the compile time.
    """
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def as_it_is(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        def run(args: list[Any]) -> Any:
            return gm(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    as_they_are: Any = as_it_is
    return aot_module_simplified(
        gm,
        inputs,
        fw_compiler=as_they_are,
        bw_compiler=as_they_are,
        inference_compiler=as_they_are,
        partition_fn=min_cut_rematerialization_partition,
        decompositions={},
    )
