"""Drawn programs are the same by seed, valid, within their bounds; right backends pass them, wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
import keel_eager
from keel_conformance import graphs
from keel_conformance.graphs.graph_builder import LIMITS
from keel_conformance.graphs.graph_generator import NODES, draw
from keel_conformance.graphs.graph_ir import OPS, random_inputs, run
from keel_conformance.programs import Compiler

CASES = list(graphs.cases())


def verdict(case: Any, backend: keel.Backend) -> Any:
    return graphs.judge(case, graphs.run_case(case, Compiler(backend)))


def test_cases() -> None:
    assert len(CASES) >= 300 and len({c.id for c in CASES}) == len(CASES)
    assert list(graphs.cases("smoke")) == CASES[: len(list(graphs.cases("smoke")))]
    assert len({str(graphs.program_of(c)) for c in CASES[:20]}) == 20
    assert str(graphs.program_of(CASES[7])) == str(graphs.program_of(CASES[7]))


def test_programs_are_of_the_size_asked_for_and_use_every_operator() -> None:
    drawn = [draw(n, n % 3 != 2) for n in range(120)]
    assert max(len(p.nodes) for p in drawn) <= NODES
    assert sorted(len(p.nodes) for p in drawn)[len(drawn) // 2] >= 10
    used = {n.op for p in drawn for n in p.nodes}
    assert not set(OPS) - used - {"eq", "le", "and", "or", "conv", "sign", "max_pool"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_exact_programs_are_exact(dtype: str) -> None:
    for seed in range(15):
        program = draw(seed, True, dtype)
        inputs = random_inputs(program, seed, 0)
        wide = replace(
            program,
            nodes=tuple(
                graphs.Node(n.op, n.args, tuple((k, "float64" if v == dtype else v) for k, v in n.attrs))
                for n in program.nodes
            ),
        )
        for x, y in zip(
            run(program, inputs),
            run(wide, [i.double() if i.dtype == getattr(torch, dtype) else i for i in inputs]),
            strict=True,
        ):
            assert torch.equal(x.double(), y.double()), str(program)
            assert not x.is_floating_point() or not x.numel() or x.abs().max() <= LIMITS[dtype]


def test_pruning_keeps_the_results() -> None:
    for seed in range(10):
        program = draw(seed)
        first = graphs.pruned(replace(program, outputs=program.outputs[:1]))
        kept = [graphs.run(p, random_inputs(p, 0, 0))[0].shape for p in (program, first)]
        assert kept[0] == kept[1] and len(first.nodes) <= len(program.nodes)


def test_a_module_computes_the_program() -> None:
    program = draw(5)
    inputs = random_inputs(program, 1, 2)
    assert all(map(torch.equal, graphs.module(program)(*inputs), run(program, inputs)))


@pytest.mark.parametrize("backend", ["eager", "interp", "cpp"])
@pytest.mark.parametrize("number", [1, 2])
def test_right_backends_pass(backend: str, number: int) -> None:
    found = verdict(CASES[number], keel.testing.find(backend))
    assert found.status == "pass", found.sentence


def faulty(change: Callable[[Tensor], Tensor]) -> keel.Backend:
    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        return lambda *args: tuple(change(x) for x in gm(*args))

    return replace(keel_eager.backend, name="faulty", last_resort=False, compile=compile)


def last_wrong(x: Tensor) -> Tensor:
    """The last element is as the one before it."""
    x = x.clone()
    if x.numel() > 1 and x.is_floating_point():
        x.view(-1)[-1] = x.view(-1)[-2] + 1
    return x


@pytest.mark.parametrize("change", [last_wrong, torch.zeros_like, lambda x: x.to(torch.float16)])
def test_wrong_backends_fail(change: Callable[[Tensor], Tensor]) -> None:
    exact, rounded = CASES[1], CASES[2]
    assert verdict(exact, faulty(change)).status == verdict(rounded, faulty(change)).status == "fail"
