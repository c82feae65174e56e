"""Compiled graphs from the cache: what is compiled again, what is not, and that results are the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
from keel import KeelWarning, compiler
from keel.artifact import graph_cache
from keel.plugin import CompileContext, Option, PreparedConstants

from ..line import takes, whole
from .new_process import kinds_of, run

R = torch.randn


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The graph cache in a folder of its own, which has nothing in it. PyTorch saves nothing."""
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "1")
    monkeypatch.setattr(compiler, "saves_of", lambda settings: None)
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path))
    torch.compiler.reset()
    yield tmp_path
    torch.compiler.reset()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the graphs that were compiled, not loaded."""
    return kinds_of(monkeypatch, "compile_graph")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("graph-*"))


def programs() -> Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    layer = torch.nn.Linear(8, 8)
    image = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    return {
        "kernels": (lambda x, y: (x.softmax(-1) + y, x.sum(0)), (R(4, 9), R(4, 9))),
        "a library call": (lambda x: layer(x).relu(), (R(5, 8),)),
        "packed weights": (lambda x: image(x), (R(2, 3, 8, 8),)),
        "sizes": (lambda x: (x.shape[0] * 2 + 1, x[1:] * 2), (R(6, 3),)),
        "views": (lambda x: (x.t(), x[1:].view(-1), x.t() + 1), (R(4, 4),)),
        "indices": (lambda x, i: x[i] + 1, (R(6, 3), torch.tensor([0, 5, -1]))),
        "unsorted numbers": (lambda x: x.nonzero() * 2, (torch.tensor([0.0, 1.0, 2.0]),)),
        "complex numbers": (lambda x: (x.conj() * 2, x.real + 1), (R(3, dtype=torch.complex64),)),
        "floats that JSON lacks": (lambda x: torch.where(x > 0, x, -torch.inf).clamp(max=torch.inf), (R(7),)),
        "an assertion": (asserted, (torch.tensor([3]),)),
        "a branch": (branch, (torch.tensor(True), R(3))),
        "a constant": (lambda x: x * torch.tensor([2.0, 3.0, 4.0]), (R(3),)),
        "in place": (lambda x: x.clone().add_(1), (R(3),)),
    }


def asserted(n: Tensor) -> Tensor:
    size = n.item()
    torch._check(size < 100)
    return torch.zeros(int(size)) + 1


def branch(flag: Tensor, x: Tensor) -> Any:
    return torch.cond(flag, lambda y: y.sin(), lambda y: y.cos(), (x,))


@pytest.mark.parametrize("backends", [("cpp", "eager"), ("interp", "eager"), ("eager",)], ids="-".join)
@pytest.mark.parametrize("name", programs())
def test_a_graph_is_compiled_once_and_gives_the_same(name: str, backends: tuple[str, ...], compiled: list[str]) -> None:
    fn, args = programs()[name]
    first = run(fn, *args, backends=backends)
    assert compiled
    compiled.clear()
    again = run(fn, *args, backends=backends)
    assert not compiled
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    torch.testing.assert_close(again, fn(*args))


def test_training_is_loaded_too(compiled: list[str]) -> None:
    def step() -> list[Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 6), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.LayerNorm(6)
        )
        run(model, x).sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    x = R(4, 6)
    first = step()
    assert compiled == ["forward", "backward"]
    torch.testing.assert_close(step(), first, rtol=0, atol=0)
    assert compiled == ["forward", "backward"]


def test_a_loaded_graph_has_the_guards_that_compiling_it_added(compiled: list[str]) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=2.0) + y

    def both() -> list[Tensor]:
        torch.compiler.reset()
        step = keel.compile(fn, backends=["cpp", "eager"], dynamic=True)
        return [step(a, b) for a, b in inputs]

    inputs = [(R(1, 2, n, n), R(2 * n, 2 * n)) for n in (4, 5, 9)]
    first, graphs = both(), len(compiled)
    torch.testing.assert_close(both(), first, rtol=0, atol=0)
    assert len(compiled) == graphs
    torch.testing.assert_close(first, [fn(*pair) for pair in inputs])


def test_conditions_that_compiling_adds_hold_after_loading(compiled: list[str]) -> None:
    """A backend that looks at a symbolic size adds a guard, without which its part would run for other sizes."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        values = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
        return scaled(2 if next(v for v in values if isinstance(v, Tensor)).shape[0] < 10 else 3)

    def scaled(factor: int) -> Callable[..., Any]:
        def run(*args: Any) -> tuple[Tensor, ...]:
            return tuple(x * run.factor for x in args if isinstance(x, Tensor))  # type: ignore[attr-defined]

        run.factor = factor  # type: ignore[attr-defined]
        return run

    vendor = whole(
        fingerprint=lambda: "1",
        serialize=lambda run: str(run.factor).encode(),
        deserialize=lambda data: scaled(int(data)),
    )
    vendor = replace(vendor, compile=compile)

    def both() -> list[int]:
        torch.compiler.reset()
        step = keel.compile(lambda x: x.exp(), backends=[vendor], dynamic=True)
        return [int(step(torch.ones(n))[0]) for n in (5, 20)]

    assert both() == both() == [2, 3] and len(compiled) == 2


def test_a_plugin_that_serializes_compiles_once(compiled: list[str]) -> None:
    calls: list[str] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> PreparedConstants:
        calls.append("compile")
        return made(ctx.options["level"])

    def made(level: int) -> PreparedConstants:
        return PreparedConstants(lambda constants: level, lambda state, x: (x * state,))

    def deserialize(data: bytes, ctx: CompileContext) -> PreparedConstants:
        calls.append("deserialize")
        assert ctx.options["level"] == 3
        return made(int(data))

    level = Option(name="level", type=int, default=3, sentence="How hard to optimize.")
    vendor = whole("acme", fingerprint=lambda: "acme 1.0", serialize=lambda run: b"3", deserialize=deserialize)
    vendor = replace(vendor, compile=compile, options=(level,))
    weight = torch.nn.Parameter(R(3))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(
                run(lambda x: x * weight, torch.ones(3), backends=[vendor]), torch.full((3,), 3.0)
            )
    assert calls == ["compile", "deserialize", "deserialize"]


def test_a_plugin_that_cannot_serialize_a_part_compiles_it_again() -> None:
    calls: list[str] = []

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        calls.append("compile")
        return gm.forward

    def fails(run: Any) -> bytes:
        raise NotImplementedError

    vendor = whole("acme", fingerprint=lambda: "acme 1.0", serialize=fails, deserialize=lambda data: 1 / 0)
    for _ in range(2):
        torch.testing.assert_close(
            run(torch.sin, torch.ones(3), backends=[replace(vendor, compile=compile)]), torch.ones(3).sin()
        )
    assert calls == ["compile", "compile"]


def test_results_of_any_layout_and_views_are_made_as_before(compiled: list[str]) -> None:
    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        return lambda *args: tuple(r.t().contiguous().t() if r.dim() == 2 else r for r in gm(*args))

    vendor = replace(whole("acme", any_layout=True, fingerprint=lambda: "1"), compile=compile)
    x = R(3, 4)
    for _ in range(2):
        y, z = run(lambda x: ((x * 2), (x * 2).view(12)), x, backends=[vendor])
        assert y.is_contiguous()
        torch.testing.assert_close((y, z), (x * 2, (x * 2).view(12)))
    assert compiled == ["inference"]


def test_without_a_fingerprint_a_graph_is_not_kept(cache: Path, compiled: list[str]) -> None:
    for _ in range(2):
        run(torch.sin, R(3), backends=[whole()])
    assert compiled == ["inference"] * 2 and not entries(cache)


@pytest.mark.parametrize("change", ["fingerprint", "option", "strict", "threads", "constant", "function", "switch"])
def test_what_compiling_depends_on_is_in_the_key(
    change: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    level = Option(name="level", type=int, default=3, sentence="How hard to optimize.")
    vendor = whole("acme", fingerprint=lambda: "1", options=(level,))
    options: dict[str, Any] = {}
    scale = torch.tensor([2.0, 3.0, 4.0])

    def fn(x: Tensor) -> Tensor:
        return x * torch.tensor([2.0, 3.0, scale_of])

    scale_of = 4.0
    x = R(3)
    for _ in range(2):
        run(fn, x, backends=[vendor])
    assert len(compiled) == 1
    match change:
        case "fingerprint":
            vendor = replace(vendor, fingerprint=lambda: "2")
        case "option":
            options["options"] = {"acme.level": 4}
        case "strict":
            options["strict"] = True
        case "threads":
            monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
        case "constant":
            scale_of = 5.0
        case "function":
            vendor = replace(vendor, compile=_forward)
        case "switch":
            monkeypatch.setenv("KEEL_GRAPH_CACHE", "0")
    torch.testing.assert_close(run(fn, x, backends=[vendor], **options), x * torch.tensor([*scale[:2], scale_of]))
    assert len(compiled) == 2


def test_a_frozen_graph_depends_on_the_values_of_its_weights(compiled: list[str]) -> None:
    layer, x = torch.nn.Linear(3, 3), R(2, 3)
    with torch.no_grad():
        for graphs in (1, 1, 2):
            if graphs == 2:
                layer.weight.mul_(2)
            torch.testing.assert_close(run(layer, x, freeze=True), layer(x))
            assert len(compiled) == graphs


def _forward(gm: fx.GraphModule) -> Callable[..., Any]:
    return gm.forward


def test_a_failure_is_told_in_each_process(cache: Path) -> None:
    def fails(gm: fx.GraphModule) -> Callable[..., Any]:
        raise RuntimeError("the compiler broke")

    vendor = replace(takes("sin", name="acme"), compile=fails, fingerprint=lambda: "1")
    for _ in range(2):
        with pytest.warns(KeelWarning, match="the compiler broke"):
            run(torch.sin, R(3), backends=[vendor, "eager"])
    assert not entries(cache)


@pytest.mark.parametrize("content", [b"", b"not compressed", b"x\x9cK\xcaI\x04\x00\x02}\x01\x10"])
def test_an_entry_that_cannot_be_used_costs_time_alone(content: bytes, cache: Path, compiled: list[str]) -> None:
    x = R(5)
    run(torch.sin, x)
    (entry,) = entries(cache)
    monkey = graph_cache.CACHE
    kept = {}
    key_of = graph_cache.graph_key

    def remember(captured: Any, settings: Any) -> Any:
        kept["key"] = key_of(captured, settings)
        return kept["key"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_cache, "graph_key", remember)
        run(torch.sin, x)
        monkey.put(kept["key"], content)
        torch.testing.assert_close(run(torch.sin, x), x.sin())
    assert compiled == ["inference", "inference"] and entry.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(torch.sin, x)
    assert len(compiled) == 2
