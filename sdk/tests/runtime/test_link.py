"""The linked function: what it calls, returns, frees."""

from __future__ import annotations

import signal
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
from keel.errors import KeelError
from keel.placement import build_part_graphs, place
from keel.runtime.contract_checks import contract_of
from keel.runtime.link import CompiledPart, link
from keel.runtime.link_program import link_program
from keel.torch_adapter import tidied

from ..line import takes, trace, whole

R = torch.randn
BACKENDS = [takes("mm", name="mm"), takes("add", "mul", name="pointwise"), whole("rest", last_resort=True)]


def linked(fn: Callable[..., Any], *inputs: Any, symbolic: bool = False) -> Callable[[list[Any]], Any]:
    captured = tidied(trace(fn, *inputs, symbolic=symbolic), "inference")
    plan = place(captured.gm, BACKENDS)
    parts = [CompiledPart(p.part.name, p.gm.forward, p.inputs, p.outputs) for p in build_part_graphs(captured.gm, plan)]
    return link(link_program(captured.gm, captured.constants), parts, captured.constants)


def test_parts_are_called_in_order_and_values_dropped_after_their_last_use(golden: Callable[..., None]) -> None:
    run = linked(lambda x, w: ((x @ w + 1) @ w * 2, None, 3, x), R(4, 4), R(4, 4))
    golden(run.__doc__ or "")
    x, w = R(4, 4), R(4, 4)
    got = run([x, w])
    torch.testing.assert_close(got[0], (x @ w + 1) @ w * 2)
    assert got[1:3] == [None, 3] and got[3] is x


def test_the_list_of_inputs_is_emptied_so_that_they_can_be_freed() -> None:
    alive: list[bool] = []

    def second(y: Tensor) -> tuple[Tensor]:
        alive.append(seen() is not None)
        return (y,)

    captured = tidied(trace(lambda x, w: ((x @ w) + 1,), R(2, 2), R(2, 2)), "inference")
    first, last = build_part_graphs(captured.gm, place(captured.gm, BACKENDS))
    run = link(
        link_program(captured.gm, {}),
        [
            CompiledPart("first", first.gm.forward, first.inputs, first.outputs),
            CompiledPart("last", second, last.inputs, last.outputs),
        ],
        {},
    )
    args = [R(2, 2), R(2, 2)]
    seen = weakref.ref(args[0])
    run(args)
    assert args == [] and alive == [False]


def test_constants_are_bound() -> None:
    run = linked(lambda x: (x * torch.tensor([1.0, 2.0]) + 1,), R(2))
    torch.testing.assert_close(run([torch.ones(2)]), [torch.tensor([2.0, 3.0])])


def test_sizes_are_computed_in_line() -> None:
    run = linked(lambda x: (x * 2, x.shape[0] * 3 + x.shape[1]), R(4, 5), symbolic=True)
    assert run([R(7, 6)])[1] == 27


def test_a_graph_without_parts_returns_its_inputs() -> None:
    x = R(2)
    assert linked(lambda x, y: (x, 3), R(2), R(2))([x, R(2)]) == [x, 3]


def test_a_boxed_part_is_given_what_dies_with_it() -> None:
    """No other reference to the values that were saved for backward is left."""
    alive: list[list[bool]] = []

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return gm.forward(*args)

        def boxed(args: list[Any]) -> Any:
            results = gm.forward(*args)
            given = [weakref.ref(a) for a in args]
            args.clear()
            alive.append([r() is not None for r in given])
            return results

        run.boxed = boxed  # type: ignore[attr-defined]
        return run

    backend = keel.Backend(name="boxed", device="*", supports=lambda call: None, compile=compile)
    w = torch.randn(4, 4)
    step = keel.compile(lambda x: ((x @ w).tanh() @ w).tanh().sum(), backends=[backend], strict=True)
    for _ in range(2):
        step(torch.randn(4, 4, requires_grad=True)).backward()
    _, backward = alive  # of the second step; the first is checked, and positional
    assert sum(backward) <= 2  # w, transposed or as it is, and the gradient of the result


def test_a_first_call_is_replaced_once_it_has_returned() -> None:
    calls: list[str] = []

    def counted(name: str, fails: bool = False) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            calls.append(name)
            if fails and len(calls) == 1:
                raise ValueError
            return part.gm.forward(*args)

        return run

    captured = tidied(trace(lambda x: (x + 1,), R(2)), "inference")
    (part,) = build_part_graphs(captured.gm, place(captured.gm, BACKENDS))
    run = link(
        link_program(captured.gm, {}),
        [CompiledPart("p0", counted("bare"), part.inputs, part.outputs, counted("first", True))],
        {},
    )
    for _ in range(4):
        try:
            run([R(2)])
        except ValueError:
            calls.append("failed")
    assert calls == ["first", "failed", "first", "bare", "bare"]


def test_what_a_part_raises_says_whose_it_is_and_keeps_its_type() -> None:
    def breaks(*args: Tensor) -> Any:
        raise ZeroDivisionError("the chip divides by zero")

    captured = tidied(trace(lambda x, w: ((x @ w) + 1,), R(2, 2), R(2, 2)), "inference")
    next(n for n in captured.gm.graph.nodes if n.name == "add").meta["stack_trace"] = (
        '  File "/models/model.py", line 41, in forward\n    return (x @ w) + 1\n'
    )
    first, last = build_part_graphs(captured.gm, place(captured.gm, BACKENDS))
    lines = contract_of(last.gm, "pointwise", "p1").lines
    run = link(
        link_program(captured.gm, {}),
        [
            CompiledPart("p0", first.gm.forward, first.inputs, first.outputs, owner="mm"),
            CompiledPart("p1", breaks, last.inputs, last.outputs, owner="pointwise", lines=lines),
        ],
        {},
    )
    with pytest.raises(ZeroDivisionError, match="the chip divides by zero") as raised:
        run([R(2, 2), R(2, 2)])
    assert raised.value.__notes__ == [
        "Raised in part p1, which pointwise compiled.\n  at /models/model.py:41   return (x @ w) + 1"
    ]


class Odd(BaseException):
    """What no function should raise."""


@pytest.mark.parametrize(
    ("raised", "said"), [(SystemExit("no license"), "SystemExit: no license"), (Odd("odd"), "Odd: odd")]
)
def test_a_part_does_not_end_the_process(raised: BaseException, said: str) -> None:
    def quits(*args: Tensor) -> Any:
        raise raised

    captured = tidied(trace(lambda x: (x + 1,), R(2)), "inference")
    (part,) = build_part_graphs(captured.gm, place(captured.gm, BACKENDS))
    run = link(
        link_program(captured.gm, {}), [CompiledPart("p0", quits, part.inputs, part.outputs, owner="pointwise")], {}
    )
    with pytest.raises(
        KeelError, match=f"Part p0, which pointwise compiled, tried to exit(.|\n)*pointwise: {said}"
    ) as error:
        run([R(2)])
    assert error.value.code == "run-raised" and error.value.__cause__ is raised


def test_what_the_user_stops_a_part_by_goes_through() -> None:
    def stop(number: int, frame: Any) -> None:
        raise SystemExit("the user's")

    def slow(*args: Tensor) -> Any:
        signal.raise_signal(sent)

    captured = tidied(trace(lambda x: (x + 1,), R(2)), "inference")
    (part,) = build_part_graphs(captured.gm, place(captured.gm, BACKENDS))
    run = link(
        link_program(captured.gm, {}), [CompiledPart("p0", slow, part.inputs, part.outputs, owner="pointwise")], {}
    )
    before = signal.signal(signal.SIGTERM, stop)
    try:
        sent = signal.SIGTERM
        with pytest.raises(SystemExit, match="the user's"):
            run([R(2)])
        sent = signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            run([R(2)])
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    "name", ["__import__('os').abort()", "a b", "x\n    raise", "lambda", "args", "run", "é", "v_x"]
)
def test_nodes_and_parts_may_have_any_names(name: str) -> None:
    """A node's name comes from a program or a file: it becomes a variable's only if it can be one."""
    captured = tidied(trace(lambda x, w: ((x @ w) + w.shape[0], 3), R(2, 2), R(2, 2)), "inference")
    parts = build_part_graphs(captured.gm, place(captured.gm, BACKENDS))
    names = {n.name: f"{name}{k or ''}" for k, n in enumerate(captured.gm.graph.nodes)}
    for node in captured.gm.graph.nodes:
        node.name = names[node.name]
    linkables = [
        CompiledPart(
            f"{name}{k or ''}", p.gm.forward, tuple(names[i] for i in p.inputs), tuple(names[o] for o in p.outputs)
        )
        for k, p in enumerate(parts)
    ]
    constant = {names[n]: torch.ones(2, 2) for n in ("w_1",) if n in names}
    run = link(link_program(captured.gm, constant), linkables, constant)
    x = R(2, 2)
    got = run([x] if constant else [x, torch.ones(2, 2)])
    torch.testing.assert_close(got[0], x @ torch.ones(2, 2) + 2)
    assert got[1] == 3 and "os" not in (run.__doc__ or "")
