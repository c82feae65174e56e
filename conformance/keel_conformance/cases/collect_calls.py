"""Collects calls that are known to be valid: an operator's own samples, and the calls that OpInfos make of the rest.

``python -m keel_conformance.cases.collect_calls samples`` stores the samples of the declarations, ``... opinfos`` those
of PyTorch's OpInfos (minutes; needs the OpInfo catalog), and ``... written`` the calls written by hand. Only a change
of the declarations or of PyTorch needs it.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Container, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from keel import harvest as opinfos
from keel.opset import MEMBERS, Op, overload_of

from .diversity import facets, select_diverse
from .handwritten import handwritten_calls
from .saved_call import OWN, SavedCall, TensorSpec, from_json, rebuilt, redrawn, save_call, to_json, walk
from .saved_call import Path as Where

FILES = ("samples.json", "opinfo_calls.json", "handwritten.json", "attribute_variants.json")
LARGE = 20_000
"""Elements of a sample that is too large to be drawn in each dtype and layout."""
MOST = 24
"""Calls of a member, of one kind each: those that differ most."""
MAX_TRIED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
FOLLOWING = frozenset({"softmax_backward", "log_softmax_backward"})
"""Members whose dtype argument is that of the operands."""
KEEP_VALUES = ("linalg",)
"""Profiles whose arguments are matrices with a property (definite, orthogonal, triangular), so that values stay."""


@cache
def load_calls(file: str) -> Mapping[str, tuple[SavedCall, ...]]:
    """What a file has, by member."""
    path = Path(__file__).with_name(file)
    data = json.loads(path.read_text()) if path.is_file() else {}
    return {name: tuple(map(from_json, calls)) for name, calls in data.items()}


# -- of PyTorch's OpInfos ---------------------------------------------------------------------------------------------


def collect_calls() -> dict[str, list[dict[str, Any]]]:
    """Different calls of each overload without samples, each with the dtypes in which eager PyTorch runs it."""
    members = {
        target: op
        for op in MEMBERS.values()
        if op.kind != "opaque"
        for target in op.targets[0 if op.samples is None else 1 :]
    }
    results: dict[str, dict[str, SavedCall]] = {}
    for called, args, kwargs in opinfos.calls(frozenset(members)):
        op = members[called]
        try:
            made = save_call(str(called), args, kwargs, own=_floating, keep=op.profile in KEEP_VALUES)
            kind = json.dumps(_kind(to_json(made)), sort_keys=True)
        except TypeError:  # a generator, say
            continue
        results.setdefault(op.name, {}).setdefault(kind, _following(made) if op.name in FOLLOWING else made)
    return _opinfo_calls(results)


def _following(made: SavedCall) -> SavedCall:
    """The dtype that OpInfos are tried in stands for that of the case."""
    args, kwargs = rebuilt(
        (made.args, made.kwargs), lambda _, v: OWN if v == torch.float32 and isinstance(v, torch.dtype) else v
    )
    return SavedCall(made.overload, args, kwargs, made.dtypes)


def by_hand() -> dict[str, list[dict[str, Any]]]:
    """The same of calls that are written by hand."""
    calls, result = handwritten_calls(), dict[str, dict[str, SavedCall]]()
    for name, op in MEMBERS.items():
        for target in op.targets:
            for i, (overload, args, kwargs) in enumerate(calls.get(str(target), ())):
                result.setdefault(name, {})[f"{overload} {i}"] = save_call(overload, args, kwargs, own=_floating)
    return _opinfo_calls(result)


def _opinfo_calls(calls_by_member: Mapping[str, Mapping[str, SavedCall]]) -> dict[str, list[dict[str, Any]]]:
    encoded = {}
    for name, calls in sorted(calls_by_member.items()):
        good = [s for s in (with_dtypes(MEMBERS[name], s) for s in _spread(list(calls.values()))) if s.dtypes]
        if good:
            encoded[name] = [to_json(s) for s in good]
        else:
            print(f"{name}: eager PyTorch runs no call of it")
    return encoded


def with_dtypes(op: Op, made: SavedCall, dtypes: Sequence[torch.dtype] = MAX_TRIED) -> SavedCall:
    """The call with those of the dtypes in which eager PyTorch runs it."""
    target = next(t for t in op.targets if str(t) == made.overload)
    good = []
    for dtype in dtypes:
        try:
            args, kwargs = redrawn(made, dtype)
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                out = target(*args, **kwargs)
        except Exception:  # a call that eager refuses cannot be a case
            continue
        if not (isinstance(out, torch.Tensor) and out.dtype == torch.complex32):  # which the opset leaves out
            good.append(dtype)
    return SavedCall(made.overload, made.args, made.kwargs, tuple(good))


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


def _floating(path: Where, x: torch.Tensor) -> bool:
    """OpInfos are tried in one float: a tensor of another dtype is an index, a mask or a size."""
    return x.dtype in (torch.float32, torch.complex64)


def _spread(calls: list[SavedCall]) -> list[SavedCall]:
    chosen = select_diverse(calls, [facets(call) for call in calls])[:MOST]
    return [call for call in calls if call in chosen]


# -- of the declarations ----------------------------------------------------------------------------------------------


def declared() -> dict[str, list[dict[str, Any]]]:
    """The samples of each member that has some, with the dtypes in which eager PyTorch runs them."""
    results = {}
    for name, op in MEMBERS.items():
        calls = [with_dtypes(op, s, s.dtypes) for s in _of_samples(op)]
        if good := [s for s in calls if s.dtypes]:
            results[name] = [to_json(s) for s in _spread(good)]
    return results


def _of_samples(op: Op) -> list[SavedCall]:
    """Its samples, equal but for values and layout taken once, with the dtypes that each is given for."""
    dtypes = op.dtypes or (torch.float32,)
    first = torch.float32 if torch.float32 in dtypes else dtypes[0]
    samples = [
        (dtype, s)
        for dtype in (first, *(d for d in dtypes if d != first))
        for s in (op.samples(dtype) if op.samples is not None else ())
        if _small(s.args, s.kwargs)
    ]
    data = {
        path
        for dtype, s in samples
        for path, v in walk((s.args, s.kwargs))
        if dtype == first and isinstance(v, torch.Tensor) and v.dtype == first
    }
    named = _follows(samples)
    results: dict[str, tuple[SavedCall, list[torch.dtype]]] = {}
    for dtype, sample in samples:
        try:
            called = str(overload_of(op, sample.args, sample.kwargs))
        except LookupError:
            continue
        made = save_call(
            called,
            sample.args,
            sample.kwargs,
            keep=op.profile in KEEP_VALUES,
            own=partial(_is_data, data, dtype),
        )
        args, kwargs = rebuilt((made.args, made.kwargs), lambda path, v: OWN if path in named else v)
        key = repr([(p, _bare(v)) for p, v in walk((args, kwargs))])
        results.setdefault(key, (SavedCall(called, args, kwargs), []))[1].append(dtype)
    return [SavedCall(s.overload, s.args, s.kwargs, tuple(dict.fromkeys(d))) for s, d in results.values()]


def _small(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return all(v.numel() <= LARGE for _, v in walk((args, kwargs)) if isinstance(v, torch.Tensor))


def _is_data(paths: Container[Where], dtype: torch.dtype, path: Where, x: torch.Tensor) -> bool:
    return path in paths and x.dtype == dtype


def _follows(samples: list[tuple[torch.dtype, Any]]) -> frozenset[Where]:
    """Where dtypes are named that are those of the samples."""
    follows_sample: dict[Where, bool] = {}
    for dtype, s in samples:
        for path, v in walk((s.args, s.kwargs)):
            if isinstance(v, torch.dtype):
                follows_sample[path] = follows_sample.get(path, True) and v == dtype
    return frozenset(path for path, follows in follows_sample.items() if follows)


def _bare(leaf: Any) -> Any:
    """What tells a sample from another: sizes, and attributes; the dtype it is given for does not."""
    return (leaf.shape, "own" if leaf.own else leaf.dtype) if isinstance(leaf, TensorSpec) else leaf


def write(file: str, calls_by_member: Mapping[str, list[dict[str, Any]]]) -> None:
    lines = [
        f"{json.dumps(name)}: [\n  {f',{chr(10)}  '.join(json.dumps(c) for c in calls)}]"
        for name, calls in calls_by_member.items()
    ]
    Path(__file__).with_name(file).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    which = sys.argv[1]
    collected = {"samples": declared, "opinfos": collect_calls, "written": by_hand}[which]()
    write(dict(zip(("samples", "opinfos", "written"), FILES, strict=False))[which], collected)
    print(f"{len(collected)} members, {sum(map(len, collected.values()))} calls")
