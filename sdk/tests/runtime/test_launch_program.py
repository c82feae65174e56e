"""Launch programs printed as Python: what strange names become, what a call asserts, where kept memory is made."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import sympy
import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

import keel
from keel.runtime.launch_program import (
    Allocate,
    Assert,
    BindSymbol,
    CallLibrary,
    Compute,
    Free,
    InputNumber,
    LaunchProgram,
    LayOut,
    Return,
    SizeOf,
)
from keel.runtime.launch_verify import verify_program
from keel.schedule.tensor_graph import Slot
from keel.types import SymType, TensorType

from .programs import function_of, program_of

pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
aten = torch.ops.aten
ATTACK = "__import__('os').abort()"


def integer(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, positive=True)


@pytest.mark.parametrize(
    "names",
    [
        ("a", "b"),
        (ATTACK, "b"),
        ("t0", "run"),
        ("take", "fit"),
        ("lambda", "None"),
        ("math", "int"),
        ("x0", "x1"),
        ("é", "Max"),
        ("a b", "a_b"),
    ],
)
def test_symbols_may_have_any_names(names: tuple[str, str]) -> None:
    one, two = map(integer, names)
    row = TensorType.dense(torch.float32, (one, two))
    program = LaunchProgram(
        (row, row),
        (0,),
        (
            BindSymbol(names[0], SizeOf(0, 0)),
            BindSymbol(names[1], SizeOf(0, 1)),
            Compute("sum", one + two),
            CallLibrary(aten.neg.default, (Slot(0),), {}, (1,)),
            LayOut(1),
            Return((1, SymType(sympy.Max(one, two) // 2), SymType(integer("sum") * one))),
        ),
    )
    verify_program(program)
    x = torch.randn(5, 7)
    result, half, product = function_of(program)(x)
    assert torch.equal(result, -x) and (half, product) == (3, 60)


def test_a_symbol_of_a_kernel_may_have_any_name() -> None:
    program = program_of(lambda x: (x.tanh() + x.shape[0],), torch.randn(4, 3), symbolic=True)
    (name, *_) = program.arena.key or tuple(s.symbol for s in program.steps if isinstance(s, BindSymbol))
    assert name.isidentifier()
    torch.testing.assert_close(function_of(program)(torch.ones(6, 3))[0], torch.ones(6, 3).tanh() + 6)


def test_constants_are_objects() -> None:
    seen: list[Any] = []

    def library(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append((args, kwargs))
        return args[0]

    row = TensorType.dense(torch.float32, (4,))
    program = LaunchProgram(
        (row, row),
        (0,),
        (
            CallLibrary(
                library, (Slot(0), ATTACK, 1.5, float("inf"), [None, True, [3]]), {"from": 2, ATTACK: 1j}, (1,)
            ),
            Return((1, None)),
        ),
    )
    run = function_of(program)
    run(torch.ones(4))
    assert seen == [((seen[0][0][0], ATTACK, 1.5, float("inf"), [None, True, [3]]), {"from": 2, ATTACK: 1j})]
    assert ATTACK not in (run.__doc__ or "")


def test_an_assertion_raises_what_it_says_where_it_stands() -> None:
    called: list[int] = []

    def library(x: torch.Tensor) -> torch.Tensor:
        called.append(1)
        return x

    n = sympy.Symbol("n", integer=True)
    row = TensorType.dense(torch.float32, (4,))
    program = LaunchProgram(
        (row, row),
        (0, SymType(n)),
        (
            BindSymbol("n", InputNumber(1)),
            Assert(sympy.Lt(n, 4), "n is 'too' large\n"),
            CallLibrary(library, (Slot(0),), {}, (1,)),
            LayOut(1),
            Return((1,)),
        ),
    )
    verify_program(program)
    run = function_of(program)
    run(torch.ones(4), 3)
    with pytest.raises(RuntimeError, match="n is 'too' large\n"):
        run(torch.ones(4), 4)
    assert called == [1]


# -- memory that is freed during a call --------------------------------------------------------------------


def chain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
    y = x @ w
    for _ in range(3):
        y = y.tanh() @ w
    return (y,)


@pytest.mark.parametrize("symbolic", [False, True])
def test_without_an_arena_each_tensor_is_freed_after_its_last_use(symbolic: bool) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    program = program_of(chain, x, w, symbolic=symbolic, arena=False)
    assert not program.arena.tensors
    alive = most = 0
    for step in program.steps:
        alive += isinstance(step, Allocate) - (isinstance(step, Free) and step.tensor not in program.inputs)
        most = max(most, alive)
    assert most == 2
    torch.testing.assert_close(function_of(program)(x, w), chain(x, w))


@pytest.mark.parametrize("arena", [False, True])
def test_an_input_in_a_list_is_freed_after_its_last_use(arena: bool) -> None:
    alive: list[bool] = []

    def product(*args: torch.Tensor, out: torch.Tensor) -> None:
        torch.mm(*args, out=out)
        alive.append(seen() is not None)

    program = program_of(chain, torch.randn(4, 4), torch.randn(4, 4), arena=arena)
    steps = [replace(s, function=product) if isinstance(s, CallLibrary) else s for s in program.steps]
    run = function_of(replace(program, steps=tuple(steps)))
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    seen = weakref.ref(x)
    expected, given = chain(x, w), [x, w]
    del x
    torch.testing.assert_close(run.boxed(given), expected)  # type: ignore[attr-defined]
    assert not given and alive == [True, False, False, False]


# -- memory that is kept between calls ---------------------------------------------------------------------


class Watching(TorchDispatchMode):
    """Sees the operators of a call, and does nothing else."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


MODES: dict[str, Callable[[], Any]] = {
    "plain": nullcontext,
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "meta": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "watching": Watching,
}


def net(x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Kernels, a product and a convolution in between, a checked index, a constant."""
    y = (x.tanh() @ w).softmax(1)
    y = torch.nn.functional.conv1d(y[None], torch.ones(6, 6, 1, device="cpu"))[0]
    return (y.t() @ y)[at].sigmoid() * torch.tensor([0.5], device="cpu")


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return net(x, w, at)


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(6, 8), torch.randn(8, 6), torch.tensor([0, 2, 5])


def check_in(modes: tuple[str, ...], run: Callable[..., Any]) -> None:
    args = inputs()
    expected = net(*args)
    for name in (*modes, *modes):
        with ExitStack() as stack:
            stack.enter_context(MODES[name]())
            got = run(*args)
        torch.testing.assert_close(got.detach().clone(), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "modes",
    [
        *permutations(("plain", "inference", "no_grad")),
        *((name, "plain", "inference") for name in ("meta", "autocast", "watching")),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("backend", ["interp", "cpp"])
def test_an_exported_program_runs_in_any_mode_after_any_other(modes: tuple[str, ...], backend: str) -> None:
    program = torch.export.export(Net(), inputs())
    with MODES[modes[0]]() if modes[0] == "inference" else nullcontext():
        run = keel.compile_exported(program, backends=[backend, "eager"])
    check_in(modes, run)


def test_a_call_with_fake_tensors_leaves_nothing_fake_behind() -> None:
    """What that call does is PyTorch's word against the backend's; the next one is as if it had not been."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    run = keel.compile_exported(torch.export.export(Net(), inputs()), backends=["cpp", "eager"])
    with FakeTensorMode(allow_non_fake_inputs=True), contextlib.suppress(Exception):
        run(*inputs())
    check_in(("plain", "inference"), run)


@pytest.mark.parametrize(
    "modes",
    [("plain", "inference"), ("inference", "plain"), ("meta", "inference", "plain"), ("autocast", "plain")],
    ids="-".join,
)
def test_compiled_calls_run_in_any_mode_after_any_other(modes: tuple[str, ...]) -> None:
    x, w, _ = inputs()
    calls = [
        (aten.tanh.default, (x,), {}),
        (aten.mm.default, (x, w), {}),
        (aten.convolution.default, (x[None], torch.ones(6, 6, 1), None, [1], [0], [1], False, [0], 1), {}),
    ]
    with MODES[modes[0]]() if modes[0] == "inference" else nullcontext():
        batch = keel.testing.compile_calls(calls, backends=["cpp", "eager"])
    for name in (*modes, *modes):
        with MODES[name]():
            got = batch.run([(args, kwargs) for _, args, kwargs in calls])
        for (result,), (op, args, kwargs) in zip(got, calls, strict=True):
            torch.testing.assert_close(result.clone(), op(*args, **kwargs))


@pytest.mark.slow
@pytest.mark.parametrize("modes", [*permutations(("plain", "inference", "no_grad"))], ids="-".join)
@pytest.mark.parametrize("parameter", [False, True], ids=["no-parameter", "parameter"])
def test_a_compiled_function_runs_in_any_mode_after_any_other(modes: tuple[str, ...], parameter: bool) -> None:
    torch.compiler.reset()
    x, w, at = inputs()
    w = w.requires_grad_(parameter)
    expected = net(x, w, at).detach()
    run = keel.compile(net, backends=["cpp", "eager"])
    for name in (*modes, *modes):
        with MODES[name]():
            got = run(x, w, at)
        torch.testing.assert_close(got.detach().clone(), expected)


def test_conjugated_constants_are_settled_outside_inference_mode() -> None:
    from keel.runtime.link import CompiledPart, link
    from keel.runtime.link_program import link_program
    from keel.torch_adapter import tidied

    from ..line import trace

    constant = torch.randn(3, dtype=torch.complex64).conj()
    captured = tidied(trace(lambda x: (x * 2,), torch.randn(3, dtype=torch.complex64)), "inference")
    kept: list[torch.Tensor] = []

    def part(x: torch.Tensor) -> tuple[torch.Tensor]:
        kept.append(x)
        return (x,)

    (name,) = [n.name for n in captured.gm.graph.find_nodes(op="placeholder")]
    output: fx.Node = captured.gm.graph.output_node().args[0][0]  # type: ignore[index, assignment]
    with torch.inference_mode():
        run = link(
            link_program(captured.gm, [name]), [CompiledPart("p0", part, (name,), (output.name,))], {name: constant}
        )
    run([])
    assert not kept[0].is_inference() and torch.equal(kept[0], constant)
