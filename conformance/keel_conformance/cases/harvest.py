"""Calls of the overloads that have no samples of their own, out of PyTorch's OpInfos, kept in ``harvested.json``.

``python -m keel_conformance.cases.harvest`` writes the file anew; that takes minutes and an OpInfo catalogue. Nothing
else needs either.
"""
from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from keel import MEMBERS, Op, universe
from keel_conformance.cases.skeleton import Part, Skeleton, from_json, rebuilt, skeleton_of, to_json

FILE = Path(__file__).with_name("harvested.json")
MOST = 10
"""Calls of a member, of one kind each."""
TRIED = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int64, torch.int32,
         torch.uint8, torch.bool)
KEPT = ("linalg",)
"""Profiles whose arguments are matrices with a property (definite, orthogonal, triangular), so that values stay."""


@cache
def harvested() -> Mapping[str, tuple[Skeleton, ...]]:
    """What the file has, by member."""
    data = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return {name: tuple(map(from_json, calls)) for name, calls in data.items()}


def harvest() -> dict[str, list[dict[str, Any]]]:
    """Different calls of each overload without samples, each with the dtypes in which eager PyTorch runs it."""
    wanted = {target: op for op in MEMBERS.values() if op.kind != "opaque"
              for target in op.targets[0 if op.samples is None else 1:]}
    found: dict[str, dict[str, Skeleton]] = {}
    for called, args, kwargs in universe.calls(frozenset(wanted)):
        op = wanted[called]
        try:
            made = skeleton_of(str(called), args, kwargs, keep=op.profile in KEPT)
            kind = json.dumps(_kind(to_json(made)), sort_keys=True)
        except TypeError:                                     # a generator, say
            continue
        found.setdefault(op.name, {}).setdefault(kind, made)
    return {name: [to_json(tried(MEMBERS[name], s)) for s in _spread(list(calls.values()))]
            for name, calls in sorted(found.items())}


def tried(op: Op, made: Skeleton) -> Skeleton:
    """The call with the dtypes in which eager PyTorch runs it."""
    from keel_conformance.cases.generic import redrawn

    target = next(t for t in op.targets if str(t) == made.overload)
    good = []
    for dtype in TRIED:
        args, kwargs = redrawn(made, dtype)
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                target(*args, **kwargs)
        except Exception:                                     # whatever eager refuses is no case
            continue
        good.append(dtype)
    return Skeleton(made.overload, made.args, made.kwargs, tuple(good))


def _kind(data: Mapping[str, Any]) -> Any:
    """What tells a call from another: all but values."""
    def bare(value: Any) -> Any:
        match value:
            case {"tensor": dtype, "shape": shape}:
                return [dtype, shape]
            case dict():
                return {k: bare(v) for k, v in value.items()}
            case list():
                return [bare(v) for v in value]
        return value
    return bare(data)


def _spread(calls: list[Skeleton]) -> list[Skeleton]:
    return calls if len(calls) <= MOST else [calls[i * len(calls) // MOST] for i in range(MOST)]


if __name__ == "__main__":
    made = harvest()
    lines = [f"{json.dumps(name)}: [\n  {f',{chr(10)}  '.join(json.dumps(c) for c in calls)}]"
             for name, calls in made.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(made)} members, {sum(map(len, made.values()))} calls")
