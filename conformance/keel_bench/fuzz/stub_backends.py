"""Backends whose machine code is a few bytes that nothing loads, so that reading a program stops before code runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import keel
from keel.plugin import CodeObject, KernelFunction
from keel.testing import find

ELSEWHERE = "another machine"
"""The name of a machine whose code cannot be loaded here."""


def nothing(*arguments: Any) -> tuple[()]:
    """Stands for what a compiled part or a kernel does."""
    return ()


@cache
def backends() -> tuple[keel.Backend, ...]:
    """One for loops and one for graphs, in the place of machine code; and the last resort, which has none."""
    loops, eager = find("cpp").target, find("eager")
    assert loops is not None
    target = replace(
        loops,
        build=_build,
        compile=_compile,
        load=_load,
        concurrent=False,
        probe=lambda: None,
        cost=None,
        fingerprint=lambda: "stub",
    )
    graphs = replace(
        eager,
        name="graphs",
        supports=keel.Support((keel.Rule(ops=("aten.linear", "aten.addmm", "aten.mm", "aten.sort")),)),
        last_resort=False,
        cost=None,
        serialize=lambda run: b"a part",
        deserialize=lambda content: nothing,
    )
    return graphs, keel.loop_backend(target), eager


def _build(sources: Sequence[keel.Source]) -> list[Any]:
    return [nothing for _ in sources]


def _compile(sources: Sequence[keel.Source], machine: str | None) -> list[CodeObject]:
    functions = tuple(KernelFunction(name=f"f{k}", source=k) for k, _ in enumerate(sources))
    target = machine or "this machine"
    return [CodeObject(kind="elf", content=b"code", target=target, needs=(("cpu", "avx2"),), functions=functions)]


def _load(objects: Sequence[CodeObject], sources: Sequence[keel.Source]) -> list[Any]:
    if any(each.target == ELSEWHERE for each in objects):
        raise keel.KeelError("not-here", "The machine code is for another machine.")
    return _build(sources)
