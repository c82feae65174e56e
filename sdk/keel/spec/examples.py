"""An example for each member: a call of a sample's arguments, as code that can be read and run.

Members without samples have theirs in ``examples.json``, which ``keel spec docs --harvest`` takes from the calls that
PyTorch's OpInfos make.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from keel.spec.op import Op, Overload
from keel.spec.opset import MEMBERS
from keel.torch_adapter import is_random
from keel.torch_adapter.harvest import calls

FILE = Path(__file__).with_name("examples.json")
FEW, MANY, WIDE = 2, 24, 116
"""How many elements an example's tensors should have at least and at most, to be written out; how long a line is."""

_VAGUE = ("linalg", "random")
"""Profiles whose results are not unique (signs of eigenvectors, draws), so that examples print their types only, as
those do that give memory without values."""


def example(op: Op) -> str | None:
    """The code of a member's example; None if it has neither samples nor a harvested call."""
    result = _of_samples(op)
    return _fitted(result) if result is not None else None


def _fitted(code: str) -> str:
    """The same example, several results one below the other if they do not fit in a line."""
    printed, (before, _, call) = output(code) or "", code.rpartition("\nprint(")
    if not call or all(len(line) <= WIDE for line in printed.splitlines()):
        return code
    below = f'{before}\nprint(*{call[:-1]}, sep="\\n")'
    return below if output(below) is not None else code


def _of_samples(op: Op) -> str | None:
    if op.samples is None or not op.targets:
        return harvested().get(op.name)
    dtypes = op.dtypes or (torch.float32,)
    dtype = torch.float32 if torch.float32 in dtypes else dtypes[0]
    called = op.targets[0]
    calls = ((s.args, dict(s.kwargs)) for s in islice(op.samples(dtype), 40))
    codes = (code(op, str(called), args, kwargs) for args, kwargs in sorted(calls, key=_plainness))
    return next((c for c in codes if c is not None and output(c) is not None), None) or harvested().get(op.name)


@cache
def harvested() -> Mapping[str, str]:
    """The examples of members that have no samples."""
    results: Mapping[str, str] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return results


def output(code: str) -> str | None:
    """What an example prints; None if it does not run here."""
    printed = io.StringIO()
    with torch.random.fork_rng(devices=()), redirect_stdout(printed):
        try:
            exec(compile(code, "<example>", "exec"), {})
        except Exception:  # it was made for another PyTorch, or is not code
            return None
    return printed.getvalue().rstrip("\n")


def _plainness(call: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[Any, ...]:
    """Sorts calls: all finite, contiguous, a few elements, in two dimensions if that is all the same."""
    tensors = list(_tensors((*call[0], *call[1].values())))
    strange = sum(not t.is_contiguous() for t in tensors)
    special = sum(
        not bool(torch.isfinite(t.double()).all()) or bool((t.double().abs() > 1e6).any())
        for t in tensors
        if not t.is_complex()
    )
    sizes = [t.numel() for t in tensors]
    misfit = sum(n < FEW or n > MANY for n in sizes)
    return strange + special + 2 * misfit, sum(t.dim() not in (1, 2) for t in tensors), sum(sizes)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, list | tuple):
            yield from _tensors(v)


def code(op: Op, overload: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """A call as code; None if an argument has no short text."""
    lines: list[str] = []

    def text(value: Any) -> str:
        match value:
            case torch.Tensor():
                name = "xyzabcdefgh"[len(lines)] if len(lines) < 11 else f"t{len(lines)}"
                lines.append(f"{name} = {_tensor(value)}")
                return name
            case list():
                return f"[{', '.join(map(text, value))}]"
            case tuple():
                return f"({', '.join(map(text, value))}{',' if len(value) == 1 else ''})"
            case float() if not math.isfinite(value):
                return f'float("{value}")'
            case torch.dtype() | torch.layout() | torch.memory_format() | None | bool() | int() | float() | complex():
                return repr(value)
            case str():
                return json.dumps(value)
            case torch.device():
                return f'"{value}"'
        raise _NoText

    try:
        arguments = [*map(text, args), *(f"{k}={text(v)}" for k, v in kwargs.items())]
    except _NoText:
        return None
    call = f"torch.ops.{overload}({', '.join(arguments)})"
    if any(map(is_random, op.targets)) or op.profile in _VAGUE or "empty" in overload:
        end = [
            f"result = {call}",
            "for r in result if isinstance(result, (tuple, list)) else [result]:",
            "    print(r.dtype, tuple(r.shape))",
        ]
    else:
        end = [f"print({call})"]
    source = "\n".join(["import torch", "", *lines, *end])
    return source if all(len(line) <= WIDE for line in source.splitlines()) else None


def harvest() -> dict[str, str]:
    """Examples for the members that have no samples, out of the calls that PyTorch's OpInfos make: the plainest that
    runs, of each.  What is in the file stays, unless its member is gone or it does not run.  Takes minutes.
    """
    made = {name: c for name, c in harvested().items() if name in MEMBERS and output(c) is not None}
    members = {t: op for op in MEMBERS.values() if op.samples is None and op.name not in made for t in op.targets}
    calls_by_name: dict[str, list[tuple[Overload, Any, Any]]] = {}
    for called, args, kwargs in calls(frozenset(members)):
        calls_by_name.setdefault(members[called].name, []).append((called, args, kwargs))
    for name, calls_of_member in sorted(calls_by_name.items()):
        codes = (
            code(MEMBERS[name], str(o), a, k) for o, a, k in sorted(calls_of_member, key=lambda g: _plainness(g[1:]))
        )
        if (first := next((c for c in codes if c is not None and output(c) is not None), None)) is not None:
            made[name] = first
    FILE.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    return made


class _NoText(Exception):
    """An argument that no short text makes."""


def _tensor(t: torch.Tensor) -> str:
    plain = t.detach()
    if t.numel() > MANY and t.dtype.is_floating_point and bool(torch.isfinite(plain.double()).all()):
        low, high = (round(float(v), 1) for v in (plain.double().min(), plain.double().max()))
        shape = ", ".join(map(str, t.shape))
        dtype = "" if t.dtype == torch.float32 else f", dtype={t.dtype}"
        return f"torch.linspace({low}, {high}, {t.numel()}{dtype})" + (f".reshape({shape})" if t.dim() != 1 else "")
    if t.numel() > 4 * MANY:
        raise _NoText
    dtype = "" if t.dtype in (torch.float32, torch.int64, torch.bool) else f", dtype={t.dtype}"
    if t.numel() == 0:
        return f"torch.empty({tuple(t.shape)}{f', dtype={t.dtype}' if t.dtype != torch.float32 else ''})"
    return f"torch.tensor({_values(plain.tolist())}{dtype})"


def _values(value: Any) -> str:
    """Nested lists with floats cut to two digits, so that they can be read."""
    match value:
        case list():
            return f"[{', '.join(map(_values, value))}]"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case float():
            return repr(round(value, 2))
        case complex():
            return repr(complex(round(value.real, 2), round(value.imag, 2)))
    return repr(value)
