"""Kernels keep the rules, are exact where they say so; the interpreter passes them, wrong launchers do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
import keel_cpp
import keel_interp
from keel_conformance import kernels
from keel_conformance.kernels import kernel_generator, kernel_template, scalars, templates

CASES = list(kernels.cases())
SMOKE = list(kernels.cases("smoke"))


def only(op: str, dtype: str = "f32", sizes: str = "") -> Any:
    return next(
        c
        for c in CASES
        if c.op == f"kernel-{op}" and c.dtype in (dtype, "") and c.levels.get("sizes", "").startswith(sizes)
    )


def test_cases() -> None:
    assert len({c.id for c in CASES}) == len(CASES) >= 1500
    assert {c.id for c in SMOKE} < {c.id for c in CASES} and list(kernels.cases()) == CASES
    cited = {c for case in CASES for c in case.clauses}
    assert cited == {f"contract.kernels.C{k}" for k in range(1, 9)}


def test_every_scalar_operation_and_monoid_has_kernels() -> None:
    assert {name.partition("-to-")[0] for name, _ in scalars.names()} == set(keel.loops.SCALARS)
    assert {f.name.split("-")[1] for f in templates.FORMS.values() if f.name.startswith("fold-")} == set(
        keel.loops.MONOIDS
    )


def test_smoke_casts_from_and_to_all_dtypes_but_one() -> None:
    casts = [c for c in SMOKE if c.op.startswith("kernel-scalar-cast-to-")]
    assert len({c.op for c in casts}) >= len(scalars.CASTS) - 1 and len({c.dtype for c in casts}) >= 12


def test_all_kernels_keep_the_rules() -> None:
    for case in CASES[::25]:
        made = kernels.kernel_case_of(case)
        keel.loops.verify(made.kernel)
        assert keel.loops.parse(keel.loops.show(made.kernel)) == made.kernel


def test_drawn_kernels_are_exact() -> None:
    """The interpreter in float64 gives the same as in the kernel's dtypes."""
    for seed in range(15):
        made = kernel_generator.made(seed)
        plain, precise = made.memory(seed, 0), made.memory(seed, 0)
        for memory, wide in ((plain, False), (precise, True)):
            keel.loops.interpret(made.kernel, [made.inner(m) for m in memory], made.sizes[0], precise=wide)
        for b, x, y in zip(made.kernel.buffers, plain, precise, strict=True):
            x, y = made.inner(x), made.inner(y)
            assert torch.equal(x.nan_to_num(), y.nan_to_num()), (seed, b.name)


def judged(case: Any, build: Any) -> Any:
    return kernels.judge(case, kernels.run_case(case, build))


def test_the_interpreter_passes() -> None:
    for case in SMOKE[::8]:
        found = judged(case, kernels.Builder(keel_interp.target))
        assert found.status == "pass", (case.id, found.sentence)


def test_cpp_passes_several_built_at_once() -> None:
    cases = [
        only("fold-sum-rows", sizes="symbolic"),
        only("fold-welford-columns"),
        only("scalar-exp"),
        only("drawn"),
        only("turn", "c128", "symbolic"),
    ]
    for case, seen in zip(cases, kernels.run_cases(cases, kernels.Builder(keel_cpp.target)), strict=True):
        found = kernels.judge(case, seen)
        assert found.status == "pass", (case.id, found.sentence)


def wrong(
    change: Callable[[keel.loops.Kernel, list[Tensor], list[int]], None],
) -> Callable[[Sequence[keel.loops.Kernel]], Any]:
    """The interpreter, and then a change of memory."""

    def build(ks: Sequence[keel.loops.Kernel]) -> list[keel.Launcher]:
        def launcher(k: keel.loops.Kernel) -> keel.Launcher:
            def run(*args: Any) -> None:
                buffers, sizes = list(args[: len(k.buffers)]), list(args[len(k.buffers) :])
                keel.loops.interpret(k, buffers, dict(zip(k.symbols, sizes, strict=True)))
                change(k, buffers, sizes)

            return run

        return [launcher(k) for k in ks]

    return build


def beyond(k: keel.loops.Kernel, buffers: list[Tensor], sizes: list[int]) -> None:
    out = buffers[-1]
    out.as_strided((1,), (1,), out.storage_offset() + len(out)).fill_(1)


def argument(k: keel.loops.Kernel, buffers: list[Tensor], sizes: list[int]) -> None:
    buffers[0].zero_()


def tail(k: keel.loops.Kernel, buffers: list[Tensor], sizes: list[int]) -> None:
    buffers[-1][8:].zero_()


def rounded(k: keel.loops.Kernel, buffers: list[Tensor], sizes: list[int]) -> None:
    buffers[-1].copy_(buffers[-1].bfloat16())


@pytest.mark.parametrize(
    ("change", "op", "clause"),
    [
        (beyond, "copy", "C5"),
        (argument, "copy", "C5"),
        (tail, "copy", "C1"),
        (tail, "scan-sum-rows", "C7"),
        (rounded, "scalar-exp", "C2"),
        (tail, "fold-welford-rows", "C2"),
        (tail, "masked-load", "C4"),
    ],
)
def test_wrong_launchers_fail(change: Any, op: str, clause: str) -> None:
    found = judged(only(op, sizes="symbolic"), wrong(change))
    assert found.status == "fail" and found.clause == f"contract.kernels.{clause}", found.sentence


def test_what_a_target_lacks_is_not_claimed() -> None:
    less = replace(
        keel_interp.target,
        limits=replace(keel_interp.target.limits, atomics=frozenset()),
        dtypes={d: n for d, n in keel_interp.target.dtypes.items() if d != torch.float64},
    )
    for case in (only("atomic-add"), only("fold-sum-rows", "f64")):
        found = judged(case, kernels.Builder(less))
        assert found.status == "not claimed" and found.sentence
    limits = replace(keel_interp.target.limits, atomic_dtypes=frozenset({torch.int8}))
    narrow = kernels.Builder(replace(keel_interp.target, limits=limits))
    for dtype, status in (("i16", "not claimed"), ("i8", "pass")):
        assert judged(only("atomic-add", dtype), narrow).status == status


def test_what_cannot_be_built_fails() -> None:
    def build(ks: Sequence[keel.loops.Kernel]) -> Any:
        raise RuntimeError("no compiler")

    seen = kernels.run_cases([only("copy"), only("turn")], build)
    assert [o.error for o in seen] == ["RuntimeError: no compiler"] * 2
    assert judged(only("copy"), build).status == "fail"


def test_drawn_kernels_check_indices_right_ones_and_wrong_ones() -> None:
    recorded = list[bool]()
    for seed in range(60):
        made = kernel_generator.made(seed)
        records = [k for k, b in enumerate(made.kernel.buffers) if made.fills.get(b.name) == kernel_template.ZERO]
        if records:
            memory = made.memory(seed, 0)
            keel.loops.interpret(made.kernel, [made.inner(m) for m in memory], made.sizes[0])
            recorded += [bool((made.inner(memory[k]) != 0).any()) for k in records]
    assert True in recorded and False in recorded


@pytest.mark.parametrize("checks", [True, False])
def test_checks_are_done_or_written_out(checks: bool) -> None:
    target = replace(keel_interp.target, checks=checks)
    for name in ("checked", "checked-and-wrong", "checked-below", "checked-and-masked"):
        found = judged(only(name), kernels.Builder(target))
        assert found.status == "pass", found.sentence


def test_a_check_that_records_nothing_fails() -> None:
    forget = wrong(lambda kernel, memory, sizes: memory[-1].zero_())
    found = judged(only("checked-and-wrong"), forget)
    assert found.status == "fail" and found.clause == "contract.kernels.C8", found
