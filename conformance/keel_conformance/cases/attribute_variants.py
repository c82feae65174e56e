"""Calls with arguments that samples do not have: other numbers, words and flags for each parameter that is not a
tensor.

Eager PyTorch accepts or refuses each call, and the declaration decides which of them it claims. ``FILE`` stores them.
``python -m keel_conformance.cases.attribute_variants`` writes it again; each call is tried in a process of its own,
because some calls end the process.
"""

from __future__ import annotations

import math
import os
import pickle
import resource
import signal
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

import keel
from keel.opset import MEMBERS, Op, decomposition_of

from ..pytree import tensor_leaves
from .collect_calls import FILES, KEEP_VALUES, with_dtypes, write
from .diversity import facets, select_diverse
from .exclusions import why_excluded
from .from_samples import known_calls
from .invalid_calls import violated
from .saved_call import SavedCall, TensorSpec, redrawn, to_json

NOT_VARIED = frozenset(
    {
        "pin_memory",
        "non_blocking",
        "layout",
        "device",
        "memory_format",
        "generator",
        "check_errors",
        "compute_mode",
        "driver",
        "size",
        "sizes",
        "stride",
        "storage_offset",
        "output_size",
        "unsafe",
        "normalized_shape",
        "num_weights",
        "benchmark",
        "deterministic",
        "cudnn_enabled",
        "allow_tf32",
        "reserve",
        "max_lengths",
        "total_L",
        "split_sizes",
        "implicit",
    }
)
"""Parameters whose values sizes follow from, or that say nothing of the result."""
FAMILIES = frozenset({"random", "collectives", "quantized"})
MOST = 12
"""Calls of a member."""
EACH = 2
"""Of one parameter."""
SECONDS, MEMORY = 20, 3 * 2**30
"""What a call may take, the process around it with it."""


def attribute_variants(op: Op) -> list[SavedCall]:
    """Those of a member, the most different."""
    calls = known_calls(op, FILES[:3])
    visited = frozenset(f for call in calls for f in facets(call))
    results = list[SavedCall]()
    for call in _first_of_each(calls):
        target: Any = next(t for t in op.targets if str(t) == call.overload)
        parameters = target._schema.arguments if target.namespace in ("aten", "prims") else ()
        for place, parameter in enumerate(parameters):
            if parameter.name not in NOT_VARIED:
                tries = [
                    _with(call, place, parameter, v) for v in _others(_argument(call, place, parameter), parameter)
                ]
                good = [t for t in (_sound(op, made) for made in tries) if t is not None]
                new = [t for t in good if facets(t) - visited]
                results += select_diverse(new, [facets(t) for t in new])[:EACH]
    return select_diverse(results, [facets(f) for f in results])[:MOST]


def _first_of_each(calls: tuple[SavedCall, ...]) -> list[SavedCall]:
    """One call of each overload, of more than one dimension if there is such."""
    results = dict[str, SavedCall]()
    for call in calls:
        rank = max((len(p.shape) for _, p in call.tensor_specs), default=0)
        held = results.get(call.overload)
        if held is None or (rank >= 2 and max((len(p.shape) for _, p in held.tensor_specs), default=0) < 2):
            results[call.overload] = call
    return list(results.values())


def _argument(call: SavedCall, place: int, parameter: Any) -> Any:
    if not parameter.kwarg_only and place < len(call.args):
        return call.args[place]
    return call.kwargs.get(parameter.name, parameter.default_value)


def _with(call: SavedCall, place: int, parameter: Any, value: Any) -> SavedCall | None:
    if parameter.kwarg_only:
        return replace(call, kwargs={**call.kwargs, parameter.name: value})
    if place > len(call.args):  # what stands between keeps its default
        return None
    return replace(call, args=(*call.args[:place], value, *call.args[place + 1 :]))


def _others(value: Any, parameter: Any) -> Iterator[Any]:
    """Other values of the same type."""
    kind = str(parameter.real_type if hasattr(parameter, "real_type") else parameter.type)
    if isinstance(value, TensorSpec) or "Tensor" in kind or "Dimname" in kind:
        return
    match value:
        case bool():
            yield not value
        case str():
            yield from (
                v
                for v in (
                    "none",
                    "tanh",
                    "sum",
                    "mean",
                    "amax",
                    "amin",
                    "prod",
                    "floor",
                    "trunc",
                    "ij",
                    "xy",
                    "left",
                    "right",
                    "linear",
                    "lower",
                    "higher",
                    "midpoint",
                    "nearest",
                )
                if v != value
            )
        case int() | float() if "Scalar" in kind or "number" in kind or isinstance(value, float):
            integers = () if isinstance(value, float) and "float" in kind else (3, -2, 0)
            yield from (v for v in (0.3, 2.5, -1.5, *integers) if v != value)
        case int():
            yield from (v for v in (-1, -2, 0, 1, 2, 3, value + 1, value - 1) if v != value)
        case list() if value and all(type(v) is int for v in value):
            yield from (
                [v + i for i, v in enumerate(value)],
                [-v for v in value],
                value[::-1],
                [v - 3 for v in value],
                [-1 - v for v in value],
                [2 * v + i for i, v in enumerate(value)],
            )
        case None if "float" in kind or "number" in kind or ("Scalar" in kind and "Type" not in kind):
            yield from (0.3, 2.5, 2)
        case None if "ScalarType" in kind or parameter.name == "dtype":
            yield from (torch.float64, torch.int64)
        case None if "int" in kind or "Int" in kind:
            yield from ((0, 1, -1) if "[]" not in kind and "List" not in kind else ([0], [-1], [0, -1]))
        case None if "bool" in kind:
            yield True
        case None if "str" in kind:
            yield from ("floor", "trunc")


def _sound(op: Op, made: SavedCall | None) -> SavedCall | None:
    """The call with the dtypes in which it is one."""
    if made is None or any(isinstance(v, float) and not math.isfinite(v) for v in made.args):
        return None
    dtypes = tuple(d for d in made.dtypes if not violated(op, made, d))
    if not dtypes:
        return None
    good = _run_isolated(lambda: [d for d in with_dtypes(op, made, dtypes).dtypes if spoken_of(op, made, d)])
    return replace(made, dtypes=good) if good else None


def spoken_of(op: Op, made: SavedCall, dtype: torch.dtype) -> bool:
    """True if the operator set covers a call that eager PyTorch runs: the results are strided, and the decomposition
    runs too and has results of the same types. Some kernels accept words and numbers that no clause mentions, and some
    return another dtype than the one that was asked for.
    """
    target = next(t for t in op.targets if str(t) == made.overload)
    args, kwargs = redrawn(made, dtype)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            keel.testing.compile_calls([(target, args, kwargs)], backends=["eager"])
            results = target(*args, **kwargs)
            decompose = decomposition_of(target)
            written_out = results if decompose is None else decompose(*args, **kwargs)
        except Exception:  # whatever the reason, the call cannot be a case
            return False
    result, others = tensor_leaves(results), tensor_leaves(written_out)
    return all(r.layout == torch.strided for r in result) and (
        written_out is NotImplemented or [(r.dtype, r.shape) for r in result] == [(r.dtype, r.shape) for r in others]
    )


def _run_isolated(ask: Any) -> Any:
    """What it gives, asked in a process of its own; None where that ends."""
    read, write_ = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            os.write(write_, pickle.dumps([str(d) for d in ask()]))
        finally:
            os._exit(0)
    os.close(write_)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return tuple(getattr(torch, name.removeprefix("torch.")) for name in pickle.loads(data)) if data else None


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = {
        name: [to_json(s) for s in variants]
        for name, op in MEMBERS.items()
        if why_excluded(op) is None
        and op.profile not in KEEP_VALUES
        and op.family not in FAMILIES
        and (variants := attribute_variants(op))
    }
    write(FILES[3], dict(sorted(made.items())))
    print(f"{len(made)} members, {sum(map(len, made.values()))} calls")
