"""The sets of backends: how many there are, that any process finds each, that each does something else, and where."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest
import torch

import keel
from keel import Backend
from keel_conformance.harness.backend_under_test import load_backend
from keel_conformance.harness.backend_worker import overload
from keel_conformance.programs.contract import CLAUSES
from keel_selftest.mutant import fits
from keel_selftest.registry import BENIGN, CONTROLS, MUTANTS, Mutant

aten = torch.ops.aten
CHAPTERS = {clause.rpartition(".")[0] for clause in CLAUSES}
ALL = [*MUTANTS.values(), *CONTROLS.values(), *BENIGN.values()]


def results(backend: Backend, op: str, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
    batch = keel.testing.compile_calls([(overload(op), args, kwargs)], backends=[backend, "eager"], strict=True)
    assert backend.name in batch.owners[0]
    return batch.run([(args, kwargs)])[0]


def test_there_are_enough_of_each_kind() -> None:
    levels = Counter(m.level for m in MUTANTS.values())
    assert len(MUTANTS) >= 60 and len(CONTROLS) == 5 and len(BENIGN) >= 20
    assert levels["op"] >= 40 and levels["system"] >= 15 and levels["loop"] >= 10


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: f"{m.level}-{m.name}")
def test_any_process_finds_it_by_its_text(mutant: Mutant) -> None:
    assert load_backend(mutant.subject).backend is mutant.backend
    assert mutant.about.endswith(".")


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda m: f"{m.level}-{m.name}")
def test_it_says_what_it_breaks(mutant: Mutant) -> None:
    """Members by name, clauses by theirs, chapters of the contract as a whole; and which cases can show it."""
    assert mutant.breaks and all(b in keel.opset.MEMBERS or b in CLAUSES or b in CHAPTERS for b in mutant.breaks)
    assert mutant.calls or mutant.programs
    packets = {str(t).rpartition(".")[0] for op in keel.opset.MEMBERS.values() for t in op.targets}
    if mutant.level == "op":
        for member in (b for b in mutant.breaks if b in keel.opset.MEMBERS):
            targets = keel.opset.MEMBERS[member].targets
            assert any(fits(str(t).rpartition(".")[0], mutant.calls) for t in targets), member
        assert any(fits(p, mutant.calls) for p in packets)


@pytest.mark.parametrize("mutant", [m for m in ALL if m.calls], ids=lambda m: f"{m.level}-{m.name}")
def test_it_takes_all_arguments_of_the_operators_it_changes(mutant: Mutant) -> None:
    """One that raises because it takes fewer is killed by any case that gives more, which says nothing of the suite."""
    change = inspect.getclosurevars(mutant.backend.compile).nonlocals.get("change")
    if change is None:
        assert mutant.level != "op"  # it has no function that stands for an operator
        return
    for target in (
        t for op in keel.opset.MEMBERS.values() for t in op.targets if fits(str(t).rpartition(".")[0], mutant.calls)
    ):
        arguments = target._schema.arguments
        inspect.signature(change).bind(
            target,
            *(a.name for a in arguments if not a.kwarg_only),
            **{a.name: a.name for a in arguments if a.kwarg_only},
        )


def test_names_of_backends_differ() -> None:
    assert len({m.backend.name for m in ALL if m.level != "loop"}) == sum(m.level != "loop" for m in ALL)


@pytest.mark.parametrize(
    ("name", "op", "args", "kwargs"),
    [
        ("add-without-alpha", "aten.add.Tensor", (torch.ones(3), torch.ones(3)), {"alpha": 3}),
        ("sum-without-tail", "aten.sum.dim_IntList", (torch.ones(7), [0]), {}),
        ("tril-off-by-one", "aten.tril.default", (torch.ones(3, 3),), {}),
        (
            "scatter-add-loses-duplicates",
            "aten.scatter_add.default",
            (torch.zeros(3), 0, torch.tensor([1, 1]), torch.ones(2)),
            {},
        ),
        ("mul-without-tail", "aten.mul.Tensor", (torch.full((9,), 2.0), torch.full((9,), 2.0)), {}),
        ("loop-max-from-zero", "aten.amax.default", (-torch.ones(4), [0]), {}),
        ("loop-scan-without-its-own", "aten.cumsum.default", (torch.ones(4), 0), {}),
        ("loop-casts-round", "aten._to_copy.default", (torch.tensor([1.75]),), {"dtype": torch.int32}),
        ("loop-folds-lose-their-tail", "aten.sum.dim_IntList", (torch.ones(7), [0]), {}),
    ],
)
def test_it_is_wrong_where_it_says(name: str, op: str, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    (got,), want = results(MUTANTS[name].backend, op, *args, **kwargs), overload(op)(*args, **kwargs)
    assert got.shape == want.shape and got.dtype == want.dtype and not torch.equal(got, want)


@pytest.mark.parametrize("name", ["add-without-alpha", "loop-max-from-zero", "argmax-of-the-last"])
def test_it_is_right_elsewhere(name: str) -> None:
    x = torch.randn(5, 7)
    (got,) = results(MUTANTS[name].backend, "aten.neg.default", x)
    assert torch.equal(got, -x)


def test_what_it_gives_is_laid_out_as_promised() -> None:
    x = torch.randn(4, 5).t()
    (got,) = results(MUTANTS["abs-of-minus-zero"].backend, "aten.abs.default", x)
    assert got.stride() == x.stride()
