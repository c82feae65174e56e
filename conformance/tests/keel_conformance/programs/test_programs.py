"""The contract is stated, cited and witnessed; right backends pass the programs, wrong ones break the right clause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
import keel_eager
from keel_conformance import programs
from keel_conformance.programs import Observation, contract
from keel_selftest.registry import MUTANTS

CASES = {c.op: c for c in programs.cases()}
PAGE = Path(__file__).parents[4] / "docs" / "conformance" / "contract.md"


def faulty(change: Callable[[fx.GraphModule], Callable[..., Any]]) -> keel.Backend:
    """Eager PyTorch but for what ``change`` makes of a graph."""
    return replace(keel_eager.backend, name="faulty", last_resort=False, compile=change)


def verdict(name: str, backend: keel.Backend) -> Any:
    case = CASES[name]
    return programs.judge(case, programs.run_case(case, programs.Compiler(backend)))


def test_page_says_the_contract() -> None:
    assert PAGE.read_text() == contract.page()


def test_every_clause_is_witnessed() -> None:
    cited = {c for case in CASES.values() for c in case.clauses}
    elsewhere = {c for c in contract.CLAUSES if c.split(".")[1] in ("graphs", "kernels")}
    assert cited | elsewhere == set(contract.CLAUSES)


def test_no_program_of_a_module_is_left_out() -> None:
    for module in (import_module(f"{programs.__name__}.{m.name}") for m in iter_modules(programs.__path__)):
        for chapter in (value for value in vars(module).values() if isinstance(value, programs.Chapter)):
            assert any(chapter is one for one in programs.CHAPTERS), (module.__name__, chapter.name)


def test_cases() -> None:
    cases = list(programs.cases())
    assert len(cases) >= 150 and len({c.id for c in cases}) == len(cases)
    calls = [programs.calls_of(c) for c in cases]
    assert min(calls) == 3 and calls.count(12) >= len(cases) // 10
    assert cases == list(programs.cases()) and {c.seed for c in programs.cases("full", 1)} == {1, 1001, 2001}
    assert {c.op for c in programs.cases("smoke")} < set(CASES)


def test_facts_go_through_a_file(tmp_path: Path) -> None:
    case = CASES["mutation-overlapping-arguments"]
    observed = programs.run_case(case, programs.Compiler(keel.testing.find("eager")))
    observed.save(tmp_path / "facts")
    again = programs.Observation.load(tmp_path / "facts")
    assert programs.judge(case, again).status == "pass"
    assert [f[:2] for f in again.facts] == [f[:2] for f in observed.facts] and observed.parts


@pytest.mark.parametrize("backend", ["eager", "interp", "cpp"])
@pytest.mark.parametrize(
    "name",
    [
        "mutation-row-of",
        "views-written-after-the-call",
        "gradients-result-left-out",
        "partition-parts-against-the-whole",
        "random-backward-has-the-mask",
        "assertions-size-of-places",
        "assertions-bound-after-its-slice",
    ],
)
def test_right_backends_pass(backend: str, name: str) -> None:
    found = verdict(name, keel.testing.find(backend))
    assert found.status == "pass", found.sentence


def stale(gm: fx.GraphModule) -> Callable[..., Any]:
    """Gives the results of the first call at every call."""
    kept: list[Any] = []

    def run(*args: Any) -> Any:
        kept.append(gm(*args)) if not kept else None
        return tuple(x.clone() if isinstance(x, Tensor) else x for x in kept[0])

    return run


def one_memory(gm: fx.GraphModule) -> Callable[..., Any]:
    """Writes the results of every call to the same memory."""
    held: list[Any] = []

    def run(*args: Any) -> Any:
        found = gm(*args)
        if not held:
            held.extend(found)
        for mine, new in zip(held, found, strict=True):
            mine.copy_(new)
        return tuple(x.view(x.shape) for x in held)

    return run


def scribbles(gm: fx.GraphModule) -> Callable[..., Any]:
    """Adds to its first argument."""

    def run(*args: Any) -> Any:
        found = gm(*args)
        args[0].data.add_(1)
        return found

    return run


def same_mask(gm: fx.GraphModule) -> Callable[..., Any]:
    """Draws the same numbers at each call."""

    def run(*args: Any) -> Any:
        torch.manual_seed(3)
        return gm(*args)

    return run


def flat(gm: fx.GraphModule) -> Callable[..., Any]:
    """Lays results out row by row."""
    return lambda *args: tuple(x.clone(memory_format=torch.contiguous_format) for x in gm(*args))


def offset(gm: fx.GraphModule) -> Callable[..., Any]:
    """Reads the first argument from where its memory starts."""

    def run(*args: Any) -> Any:
        first = args[0]
        return gm(first.as_strided(first.shape, first.stride(), 0), *args[1:])

    return run


def off(gm: fx.GraphModule) -> Callable[..., Any]:
    """Results are off by a thousandth."""
    return lambda *args: tuple(x * 1.001 if isinstance(x, Tensor) and x.is_floating_point() else x for x in gm(*args))


@pytest.mark.parametrize(
    ("change", "name", "chapter"),
    [
        (stale, "calls-values-and-addresses-change", "calls"),
        (one_memory, "calls-values-and-addresses-change", "calls"),
        (scribbles, "mutation-leaves-arguments-alone", "mutation"),
        (same_mask, "random-every-call-draws-anew", "random"),
        (flat, "layouts-pointwise-of-transposed", "layouts"),
        (offset, "calls-misaligned", "calls"),
        (off, "training-adam", "training"),
        (off, "buffers-batch-norm-2d", "buffers"),
    ],
)
def test_wrong_backends_break_a_clause(change: Callable[[fx.GraphModule], Any], name: str, chapter: str) -> None:
    assert verdict(name, faulty(lambda gm: gm.forward)).status == "pass"
    found = verdict(name, faulty(change))
    assert found.status == "fail" and found.sentence and found.clause.split(".")[1] == chapter


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        ("assertions-dropped", "assertions-size-that-nothing-uses"),
        ("assertions-last", "assertions-bound-of-an-index"),
        ("assertions-of-the-first-call", "assertions-values-of-indices"),
        ("promised-sizes-believed", "assertions-size-of-what-was-used-before"),
    ],
)
def test_assertions_that_are_dropped_or_moved_are_noticed(mutant: str, name: str) -> None:
    found = verdict(name, MUTANTS[mutant].backend)
    assert found.status == "fail" and MUTANTS[mutant].explains(CASES[name], found.clause)


def test_a_backend_that_takes_nothing_is_not_judged() -> None:
    idle = replace(keel_eager.backend, name="idle", last_resort=False, supports=lambda call: "It takes nothing.")
    assert verdict("mutation-add", idle).status == "not claimed"


def test_what_raises_fails() -> None:
    def broken(gm: fx.GraphModule) -> Callable[..., Any]:
        raise RuntimeError("no such thing")

    found = verdict("mutation-add", faulty(broken))
    assert found.status == "fail" and "no such thing" in found.sentence


def test_what_needs_a_package_that_is_not_here_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = (c for c in programs.cases() if c.op == "models-resnet18")
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    found = programs.judge(case, Observation((), "ModuleNotFoundError: No module named 'timm'"))
    assert found.status == "not run" and "needs timm" in found.sentence


def test_operators_that_are_left_out_go_elsewhere() -> None:
    compiler = programs.Compiler(keel.testing.find("cpp"))
    x = torch.arange(6.0)
    torch.compiler.reset()
    whole = compiler(lambda x: (x.relu() + 1).exp() * 2)(x)
    assert compiler.parts == 1
    parts = compiler(lambda x: (x.relu() + 1).exp() * 2, without=("aten.add",))(x)
    assert compiler.parts == 3 and torch.equal(whole, parts)


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        ("tangents-of-ones-are-folded", "gradients-one-number-as-incoming-gradient"),
        ("saved-tensors-are-donated", "gradients-backward-twice-of-a-product-that-is-a-result"),
        ("sizes-of-the-last-forward-pass", "shapes-passes-of-two-sizes"),
        ("capacity-of-the-first-call", "shapes-counts-that-grow"),
        ("sums-of-a-dirty-workspace", "shapes-reduced-dynamic"),
        ("launches-by-the-sum-of-sizes", "shapes-reduced-dynamic"),
        ("one-storage-is-uploaded-once", "arguments-beside-each-other-at-first"),
        ("constant-results-are-shared", "calls-constants-that-the-caller-writes-to"),
    ],
)
def test_runtimes_that_keep_too_much_are_noticed_at_smoke(mutant: str, name: str) -> None:
    assert name in {c.op for c in programs.cases("smoke")}
    found = verdict(name, MUTANTS[mutant].backend)
    assert found.status == "fail" and MUTANTS[mutant].explains(CASES[name], found.clause)


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        ("literals-are-donated", "calls-literals-beside-results-of-their-type"),
        ("names-cut-at-sixty-characters", "graphs-programs-alike-but-for-one-of-many-calls"),
    ],
)
def test_runtimes_that_keep_too_much_are_noticed_at_standard(mutant: str, name: str) -> None:
    found = verdict(name, MUTANTS[mutant].backend)
    assert found.status == "fail" and MUTANTS[mutant].explains(CASES[name], found.clause)
