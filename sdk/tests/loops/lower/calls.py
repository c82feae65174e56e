"""Calls made from real tensors, and the comparison of a rule with the operator it stands for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from keel.loops.builder import LoopDefinition
from keel.loops.lower import lower
from keel.symbols import HostNumbers
from keel.symbols import evaluate as value_of
from keel.types import Call, TensorType

from .evaluate import evaluate

NAN, INF = float("nan"), float("inf")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, INF, -INF, NAN, 1e-40, -3e38, 88.0, -104.0, 1.0000001, 20.25)


def type_of(t: Tensor) -> TensorType:
    return TensorType(t.dtype, tuple(t.shape), t.stride(), t.device)


def call_of(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Call:
    """The call of ``op`` on real arguments, given its real result."""
    outs = out if isinstance(out, tuple | list) else (out,)
    return Call(
        op,
        tuple(_typed(a) for a in args),
        {k: _typed(v) for k, v in kwargs.items()},
        tuple(None if o is None else type_of(o) for o in outs),
    )


def _typed(value: Any) -> Any:
    if isinstance(value, Tensor):
        return type_of(value)
    return type(value)(map(_typed, value)) if isinstance(value, list | tuple) else value


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, list | tuple) else []


def eager(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``op`` gives; PyTorch's versions differ in what they warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return op(*args, **kwargs)


def lowered(op: Any, *args: Any, **kwargs: Any) -> LoopDefinition | str:
    return lower(call_of(op, args, kwargs, eager(op, *args, **kwargs)))


def check(op: Any, *args: Any, rtol: float | None = None, atol: float | None = None, **kwargs: Any) -> LoopDefinition:
    """Asserts that the rule of ``op`` gives what ``op`` gives: dtype, shape, values, NaN for NaN."""
    want = eager(op, *args, **kwargs)
    call = call_of(op, args, kwargs, want)
    definition = lower(call)
    assert isinstance(definition, LoopDefinition), definition
    compare(call, evaluate(definition, tensors_in([*args, *kwargs.values()])), want, rtol, atol)
    return definition


def one_by_one(op: Any, *tensors: Tensor, parameters: Sequence[Any] = ()) -> Any:
    """What ``op`` gives on each element alone: eager's scalar code, from which its vectorized code sometimes
    differs.
    """
    rows = [op(*elements, *parameters) for elements in zip(*(t.split(1) for t in tensors), strict=True)]
    return tuple(map(torch.cat, zip(*rows, strict=True))) if isinstance(rows[0], tuple) else torch.cat(rows)


def compare(call: Call, got: Sequence[Tensor], want: Any, rtol: float | None = None, atol: float | None = None) -> None:
    wants = [w for w in (want if isinstance(want, tuple | list) else (want,)) if w is not None]
    assert len(got) == len(wants), f"{call}: {len(got)} results"
    for g, w in zip(got, wants, strict=True):
        assert g.dtype == w.dtype, f"{call}: {g.dtype} is not {w.dtype}"
        if rtol is None and w.dtype == torch.float16:
            rtol, atol = 2e-3, 1e-5  # eager rounds more than once on the way
        torch.testing.assert_close(
            g, w, equal_nan=True, rtol=rtol, atol=atol, check_stride=False, msg=lambda m: f"{call}\n{m}"
        )


def check_symbolic(function: Callable[..., Any], *tensors: Tensor) -> list[LoopDefinition]:
    """Traces ``function`` with symbolic sizes and asserts that each of its operators is lowered, with symbols, to what
    the static one gives when the symbols are bound.  Returns the definitions that do have symbols.
    """
    from keel.graph.calls import call_of as call_of_node
    from keel.torch_adapter import hint_of

    gm = make_fx(function, tracing_mode="symbolic")(*tensors)
    symbols: dict[str, int] = {}
    found = []
    env: dict[Any, Any] = {}
    inputs = iter(tensors)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(inputs)
            for size in node.meta["val"].shape:
                if isinstance(size, torch.SymInt):
                    symbols[str(size.node.expr)] = hint_of(size)
            continue
        if node.op == "output":
            break
        args = torch.fx.map_arg(node.args, lambda n: env[n])
        kwargs = torch.fx.map_arg(node.kwargs, lambda n: env[n])
        env[node] = node.target(*args, **kwargs)
        call = call_of_node(node)
        if call is None:
            continue
        host = HostNumbers(symbols)
        definition = lower(call, host)
        assert isinstance(definition, LoopDefinition), definition
        known = symbols | {name: value_of(expr, symbols) for name, expr in host.by_name.items()}
        compare(call, evaluate(definition, tensors_in([*args, *kwargs.values()]), known), env[node])
        if any(t.symbols for t in call.out if isinstance(t, TensorType)):
            found.append(definition)
    return found
