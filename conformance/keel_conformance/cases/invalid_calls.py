"""Calls that break one precondition and keep the others, which eager PyTorch refuses too.

A valid call is changed in one place: a size, a rank, a dtype, a number or a word. The first changed call that breaks
just the wanted precondition becomes its negative case. The calls are stored in ``invalid_calls.json``. ``python -m
keel_conformance.cases.invalid_calls`` writes that file again; it runs each call in a process of its own, because some
calls crash the process.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from math import prod
from pathlib import Path as File
from typing import Any

import torch

from keel import Call, TensorType
from keel.loops import DTYPE_NAMES
from keel.opset import MEMBERS, Op, bind

from .case import Inputs
from .domain import InvalidCall
from .exclusions import why_excluded
from .from_samples import known_calls
from .saved_call import Path, SavedCall, TensorSpec, from_json, rebuilt, redrawn, to_json, walk
from .values import SeededValues

UNBROKEN: Mapping[str, str] = {
    "no-generator": "A call with a generator is valid in PyTorch; it has no graph, and so no backend sees it.",
    "no-bias": "Eager PyTorch has no other dtype to refuse a bias in.",
    "key-form": "PyTorch has no such kernel on a CPU.",
    "splits-positive": "PyTorch has no such kernel on a CPU.",
    "driver-on-cuda-only": "What another device refuses says nothing of this one.",
    "dims-not-negative": "Eager PyTorch takes them, wrongly.",
    "dims-nonempty": "Whatever breaks it breaks another one too.",
    "input-matrix": "Whatever breaks it breaks another one too.",
    "value-fits-dtype": "Eager PyTorch takes it.",
    "gradient-sizes": "Eager PyTorch takes another, and broadcasts it.",
    "no-scale-result": "Eager PyTorch takes it.",
}
"""Preconditions, by their ids, that no call breaks so that PyTorch refuses it for all to see, and why."""
DTYPES = (torch.complex64, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)
FILE = File(__file__).with_name("invalid_calls.json")
MOST = 2
"""Negative cases of one precondition."""


def invalid_calls_of(op: Op) -> tuple[InvalidCall, ...]:
    """Those of a member."""
    result, here = [], {str(t) for t in op.targets}
    sentences = {r.id: r.sentence for r in op.requires}
    for name, broken_id, made in load_invalid_calls().get(op.name, ()):
        if made.overload in here:
            dtype = made.dtypes[0]
            result.append(
                InvalidCall(name, sentences[broken_id], partial(_trial, made, dtype), made.overload, DTYPE_NAMES[dtype])
            )
    return tuple(result)


def _trial(made: SavedCall, dtype: torch.dtype, draw: SeededValues) -> Inputs:
    return Inputs(*redrawn(made, dtype, draw))


@cache
def load_invalid_calls() -> Mapping[str, tuple[tuple[str, str, SavedCall], ...]]:
    """What the file has, by member: the name, the id of the precondition that is broken, the call."""
    data = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return {op: tuple((d["name"], d["breaks"], from_json(d["call"])) for d in result) for op, result in data.items()}


def search_invalid_calls(op: Op) -> list[dict[str, Any]]:
    """Up to two for each precondition of a member that eager PyTorch holds it to."""
    counts = dict.fromkeys(range(len(op.requires)), 0)
    results = []
    for call in known_calls(op) if counts else ():
        first = torch.float32 if torch.float32 in call.dtypes else call.dtypes[0]
        tries = [(made, first) for made in _changed(call)]
        if first.is_floating_point and torch.int64 in call.dtypes:
            tries += [(made, torch.int64) for made in _changed(call)]
        for made, dtype in tries:
            places = violated(op, made, dtype)
            if len(places) == 1 and counts[places[0]] < MOST and _holds_isolated(partial(_refused, op, made, dtype)):
                which = places[0]
                counts[which] += 1
                name = f"requires {which + 1}" + (" again" if counts[which] > 1 else "")
                results.append(
                    {"name": name, "breaks": op.requires[which].id, "call": to_json(replace(made, dtypes=(dtype,)))}
                )
        if min(counts.values()) >= MOST:
            break
    return sorted(results, key=lambda n: str(n["name"]))


def _holds_isolated(holds: Callable[[], bool]) -> bool:
    """Whether it holds, asked in a process of its own; it does not where that ends."""
    pid = os.fork()
    if not pid:
        os._exit(0 if holds() else 1)
    return os.waitpid(pid, 0)[1] == 0


def violated(op: Op, made: SavedCall, dtype: torch.dtype) -> list[int]:
    """The preconditions that arguments break, by number; those that cannot be asked are broken too."""
    target = next(t for t in op.targets if str(t) == made.overload)

    def typed(path: Path, leaf: Any) -> Any:
        return TensorType.dense(dtype if leaf.own else leaf.dtype, leaf.shape) if isinstance(leaf, TensorSpec) else leaf

    args, kwargs = rebuilt((made.args, made.kwargs), typed)
    results = []
    for i, precondition in enumerate(op.requires):
        try:
            holds = precondition.holds(bind(Call(target, args, kwargs, ())))
        except (IndexError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            holds = False
        results += [] if holds else [i]
    return results


def _refused(op: Op, made: SavedCall, dtype: torch.dtype) -> bool:
    """Whether eager PyTorch raises, on two draws."""
    target = next(t for t in op.targets if str(t) == made.overload)
    for call in range(2):
        args, kwargs = redrawn(made, dtype, SeededValues("", call))
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                target(*args, **kwargs)
        except Exception:  # of whatever kind: the call is refused
            continue
        return False
    return True


def _changed(call: SavedCall) -> Iterator[SavedCall]:
    """The call changed in one place, in all ways."""
    for path, leaf in list(walk((call.args, call.kwargs))):
        for other in _others(leaf):
            yield _with(call, path, other)
    for i, value in enumerate(call.args):
        if isinstance(value, list) and value and all(type(v) is int for v in value):
            for longer in ([*value, value[0]], [*value, 1], [*value, 77], value[:-1], [value[0]] * (len(value) + 1)):
                yield replace(call, args=(*call.args[:i], longer, *call.args[i + 1 :]))
        if isinstance(value, list) and value and isinstance(value[0], TensorSpec):
            for others in ([], [*value, replace(value[0], shape=(*value[0].shape, 2), strides=())]):
                yield replace(call, args=(*call.args[:i], others, *call.args[i + 1 :]))


def _with(call: SavedCall, path: Path, other: Any) -> SavedCall:
    args, kwargs = rebuilt((call.args, call.kwargs), lambda p, v: other if p == path else v)
    return replace(call, args=args, kwargs=kwargs)


def _others(leaf: Any) -> Iterator[Any]:
    match leaf:
        case TensorSpec():
            shape = leaf.shape
            shapes = [(*shape, 2), (2, *shape)]
            if shape:
                shapes += [
                    shape[1:],
                    shape[:-1],
                    (),
                    (*shape[:-1], shape[-1] + 1),
                    (shape[0] + 1, *shape[1:]),
                    (*shape[:-1], 0),
                    (0, *shape[1:]),
                    (*shape[:-1], 3),
                    tuple(2 * n for n in shape),
                ]
            yield from (_sized(leaf, s) for s in shapes)
            yield from (replace(leaf, own=False, dtype=d, values=None) for d in DTYPES if d != leaf.dtype or leaf.own)
        case bool() | None:
            return
        case int():
            yield from (n for n in (leaf + 1, leaf - 1, -1, 0, 99, -99, leaf + 50) if n != leaf)
        case float():
            yield from (-1.0, 2.0, 2)
        case str():
            yield "another"


def _sized(part: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    values = None if part.values is None else (part.values[:1] or (0,)) * prod(shape)
    return replace(part, shape=shape, strides=(), values=values)


if __name__ == "__main__":
    made = {
        name: invalid_calls
        for name, op in MEMBERS.items()
        if why_excluded(op) is None and (invalid_calls := search_invalid_calls(op))
    }
    lines = [
        f"{json.dumps(name)}: [\n  {f',{chr(10)}  '.join(map(json.dumps, invalid_calls))}]"
        for name, invalid_calls in made.items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    for name, op in ((n, op) for n, op in MEMBERS.items() if why_excluded(op) is None):
        met = {d["breaks"] for d in made.get(name, ())}
        for r in op.requires:
            if r.id not in met and r.id not in UNBROKEN:
                print(f"{name}: nothing breaks {r.sentence!r}")
    print(f"{len(made)} members, {sum(map(len, made.values()))} calls")
