"""Python looks for no garbage while a graph is compiled, does as before afterwards, and keeps frames side by side."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import fx

import keel
from keel.interpreter import in_one_chunk, no_collection
from keel_eager import backend as eager


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_what_raises_inside_leaves_collection_as_it_was() -> None:
    with pytest.raises(ValueError, match="inside"), no_collection():
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_one_inside_another_changes_nothing() -> None:
    with no_collection():
        with no_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_had_turned_it_off_finds_it_off() -> None:
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()


def test_backends_compile_without_collection_and_calls_run_with_it() -> None:
    seen: list[bool] = []

    def compiled(gm: fx.GraphModule) -> object:
        seen.append(gc.isenabled())

        def run(*args: torch.Tensor) -> object:
            seen.append(gc.isenabled())
            return gm(*args)

        return run

    own = replace(eager, name="watching", last_resort=False, compile=compiled)
    x = torch.ones(3, requires_grad=True)
    keel.compile(lambda x: (x * 2).sin(), backends=[own, "eager"])(x).sum().backward()
    assert seen == [False, False, True, True] or seen == [False, True, False, True], seen
    assert gc.isenabled()


def test_a_function_in_one_chunk_gives_and_raises_what_it_would() -> None:
    @in_one_chunk
    def own(x: int, *, by: int = 2) -> int:
        """Divides."""
        return x // by

    assert own(7) == 3 and own(7, by=3) == 2 and own.__doc__ == "Divides." and own.__name__ == "own"
    with pytest.raises(ZeroDivisionError):
        own(1, by=0)


@pytest.mark.skipif(sys.platform != "linux", reason="it counts the pages that Linux maps")
def test_calls_below_it_map_no_pages_wherever_they_stand() -> None:
    def deep(depth: int) -> int:
        return 0 if depth == 0 else 1 + deep(depth - 1)

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def below(depth: int, fn: Callable[[], int]) -> int:
        return fn() if depth == 0 else below(depth - 1, fn)

    @in_one_chunk
    def mapped() -> int:
        deep(40)
        before = faults()
        for _ in range(2000):
            deep(40)
        return faults() - before

    assert max(below(depth, mapped) for depth in range(0, 160, 8)) < 1000
