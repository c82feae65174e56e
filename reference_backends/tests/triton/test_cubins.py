"""Machine code for GPUs that are not here, and the launches that go with it as data."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from keel import KeelError, Source
from keel.plugin import CodeObject, CompileContext, SizeRange
from keel_triton import cubins, target
from keel_triton.block_sizes import choose
from keel_triton.cubins import CAPABILITIES, CHOICES, _block_choices, _narrow, _values, capability_of
from keel_triton.launch_plan import NARROW, plan, reach

from ..kernels import sizes_of
from .kernels import TEXTS, kernel

pytest.importorskip("triton", reason="triton is not installed")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEEL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def source(name: str, **sizes: int | None) -> Source:
    k = kernel(name, **(sizes or dict.fromkeys(sizes_of(TEXTS[name]))))
    return Source(k, target.render(k))


def compiled(*sources: Source, machine: str = "sm_80", **sizes: SizeRange) -> list[CodeObject]:
    return target.compile(sources, machine, ctx=CompileContext(sizes=sizes))


def launches(objects: list[CodeObject]) -> list[dict]:
    listed = [function.launch for each in objects for function in each.functions]
    return sorted(listed, key=lambda launch: (launch["step"], launch["rank"]))


def steady(launch: dict) -> dict:
    """A launch without shared memory and null pointers, which depend on the version of Triton."""
    parameters = [p for p in launch["parameters"] if p != ["null"]]
    return {k: v for k, v in {**launch, "parameters": parameters}.items() if k != "shared"}


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_each_machine(capability: int) -> None:
    objects = compiled(source("softmax", N=64, M=64), machine=f"sm_{capability}")
    for each in objects:
        assert (each.kind, each.target) == ("cubin", f"sm_{capability}") and each.content.startswith(b"\x7fELF")
        assert each.needs == (("cuda", f"sm_{capability}{'a' if capability >= 90 else ''}"),)
        assert each.functions[0].name.encode() in each.content


def test_the_launch_of_known_sizes() -> None:
    common = {
        "symbols": [],
        "step": 0,
        "conditions": [],
        "grid": [4096, 1, 1],
        "block": [128, 1, 1],
        "cluster": [1, 1, 1],
        "parameters": [["buffer", 0], ["buffer", 1]],
    }
    made = launches(compiled(source("softmax", N=4096, M=768)))
    assert [*map(steady, made)] == [{**common, "rank": 0, "alignment": 16}, {**common, "rank": 1, "alignment": 1}]
    assert all(0 <= launch["shared"] <= 64 for launch in made), "a row's sum is exchanged between four warps"


@pytest.mark.slow
def test_launches_as_json(golden: Callable[..., None]) -> None:
    """Without what depends on the version of Triton."""
    golden("\n".join(json.dumps(steady(launch)) for launch in launches(compiled(source("fills")))) + "\n")


@pytest.mark.slow
def test_the_best_functions_are_those_of_typical_sizes() -> None:
    typical = {"N": SizeRange(low=2, high=None, typical=4096), "M": SizeRange(low=2, high=None, typical=768)}
    one = source("softmax")
    (launch,) = plan(one.kernel)
    b = choose(launch.parts[0], {"N": 4096, "M": 768})
    ranked = launches(compiled(one, **typical))
    assert ranked[0]["block"] == [32 * b.warps, 1, 1]
    assert ranked[0]["conditions"][:2] == [["StrictLessThan", 512, "M"], ["StrictLessThan", "M", 1025]]
    assert ranked[-1]["conditions"] == [] and ranked[-1]["alignment"] == 1
    assert {p[0] for p in ranked[-1]["parameters"]} == {"buffer", "int64", "null"}
    assert {p[0] for launch in ranked[:-1] for p in launch["parameters"]} == {"buffer", "int32", "null"}


@pytest.mark.slow
def test_sources_of_a_graph_are_kept_apart() -> None:
    sources = [source("softmax", N=3, M=4), source("in_turn", N=3, M=4), source("softmax", N=3, M=5)]
    objects = compiled(*sources)
    found = [(f.source, f.launch["step"]) for each in objects for f in each.functions]
    assert sorted(found) == [(0, 0), (0, 0), (1, 0), (1, 0), (1, 1), (1, 1), (2, 0), (2, 0)]


def test_a_kernel_that_launches_nothing_has_no_function() -> None:
    assert compiled(source("softmax", N=0, M=4)) == []


# -- the choices of a launch -------------------------------------------------------------------------------------------


def test_choices_of_blocks_are_few_and_begin_with_the_typical_one() -> None:
    k = kernel("layer_norm", N=None, M=None)
    (launch,) = plan(k)
    known = {"N": SizeRange(low=1, high=None, typical=4096), "M": SizeRange(low=768, high=768, typical=768)}
    options = _block_choices(k, launch, known)
    assert options[0] == (choose(launch.parts[0], {"N": 4096, "M": 768}),) and 1 <= len(options) <= CHOICES
    fixed = {"N": SizeRange(low=8, high=8, typical=8), "M": known["M"]}
    assert len(_block_choices(k, launch, fixed)) == 1


def test_values_of_a_symbol() -> None:
    assert _values(None) == {64: 0, 256: 1, 16: -1, 1024: 2, 4: -2, 4096: 3, 1: -3, 16384: 4, 65536: 5}
    assert _values(SizeRange(low=10, high=200, typical=50)) == {50: 0, 200: 1, 12: -1}
    assert 64 in _values(SizeRange(low=0, high=None, typical=None))


@pytest.mark.parametrize("name", ["softmax", "roll", "permuted", "gather", "transposed"])
def test_the_condition_of_narrow_indices(name: str) -> None:
    from keel_triton.launch_data import value

    k = kernel(name, **dict.fromkeys(sizes_of(TEXTS[name])))
    narrow = _narrow(k)
    assert narrow is not None
    for size in (1, 7, 100, 1289, 1290, 46_000, 46_340, 50_000, 3_000_000):
        sizes = dict.fromkeys(k.symbols, size)
        assert all(value(c, sizes) for c in narrow) == (reach(k, sizes) <= NARROW), sizes


def test_a_buffer_that_is_always_large_has_no_narrow_indices() -> None:
    k = kernel("gather", N=70_000, M=70_000, K=None)
    assert _narrow(k) is None
    objects = compiled(Source(k, target.render(k)))
    assert {p[0] for launch in launches(objects) for p in launch["parameters"]} == {"buffer", "int64", "null"}


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sm_81", "sm_9", "hopper", "80", "sm_80a", "x86-64-v3", ""])
def test_a_machine_that_is_not_known(name: str) -> None:
    with pytest.raises(KeelError, match=r"(?s)bad-option.*It knows sm_75, sm_80"):
        capability_of(name)


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KeelError, match=r"(?s)not-here.*No CUDA device was found.*Name the GPU"):
        target.compile([], None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 6))
    assert capability_of(None) == 86


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from keel_triton import kernel_cache

    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(KeelError, match=r"(?s)build-failed.*triton is not installed"):
            target.compile([], "sm_80")
    monkeypatch.setattr(kernel_cache, "interpreting", lambda: True)
    with pytest.raises(KeelError, match=r"(?s)build-failed.*interprets kernels"):
        target.compile([], "sm_80")


def test_a_source_that_triton_rejects(tmp_path: Path) -> None:
    one = source("in_place", N=8, M=9)
    bad = Source(one.kernel, one.text.replace("tl.store(", "tl.stash("))
    with pytest.raises(KeelError, match=r"(?s)build-failed.*Triton could not compile in_place.*stash"):
        target.compile([bad], "sm_80")


def test_nothing_runs_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubins.torch.cuda, "get_device_capability", None)
    monkeypatch.setattr(cubins.torch.cuda, "current_device", None)
    assert compiled(source("in_place", N=8, M=8), machine="sm_90")
