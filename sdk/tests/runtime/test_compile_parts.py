"""What becomes of a part that its owner cannot compile."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
import torch
from torch import fx

from keel import Backend, KeelError, KeelWarning, selection
from keel.compiler import compile_graph
from keel.events import EventLog
from keel.placement import place
from keel.placement.placement import Plan
from keel.runtime.link import CompiledPart
from keel.settings import Settings
from keel.torch_adapter import Captured

from ..line import takes, trace, whole


def ruins(gm: fx.GraphModule) -> Any:
    for node in reversed(gm.graph.nodes):
        gm.graph.erase_node(node)
    raise ValueError("no memory\nfor this")


def compiled(
    backends: list[Backend], fn: Any = lambda x: (x @ x + 1,), strict: bool = False
) -> tuple[Plan, tuple[CompiledPart, ...]]:
    """The plan that is compiled in the end, and its parts."""
    log = EventLog()
    captured = Captured(trace(fn, torch.randn(3, 3)), "inference", {})
    compile_graph(captured, Settings(tuple(backends), strict=strict, placement="order"), None, log)
    (graph,) = log.graphs
    return graph.plan, graph.parts


def test_the_next_who_takes_the_calls_gets_a_graph_that_nobody_touched() -> None:
    backends = [
        takes("mm", "add", name="acme", compile=ruins),
        takes("mm", "add", name="next", compile=lambda gm: gm.forward),
        whole("rest"),
    ]
    with pytest.warns(KeelWarning, match="acme could not compile part p0 of 2 calls") as warned:
        plan, (made,) = compiled(backends)
    assert "next compiles it instead" in str(warned[0].message)
    x = torch.randn(3, 3)
    torch.testing.assert_close(made.run(x), (x @ x + 1,))
    assert made.owner == "next"
    assert str(plan.refusals["mm"]["acme"]) == "acme could not compile it: ValueError: no memory"


def test_the_calls_may_go_to_several_others_and_join_what_those_have() -> None:
    backends = [takes("mm", "add", name="acme", compile=ruins), takes("mm", name="half"), whole("rest")]
    with pytest.warns(KeelWarning, match="half and rest compile it instead"):
        plan, parts = compiled(backends, lambda x: ((x @ x + 1).sin(),))
    assert [str(p) for p in plan.parts] == ["p0 on half: mm", "p1 on rest: add, sin"]
    assert [len(p.trouble) for p in parts] == [1, 1]


def test_parts_that_stay_as_they_were_are_not_compiled_twice() -> None:
    seen: list[str] = []

    def heard(gm: fx.GraphModule) -> Any:
        seen.append(",".join(str(n.target) for n in gm.graph.nodes if n.op == "call_function"))
        return gm.forward

    backends = [takes("mm", name="half", compile=heard), takes("relu", name="acme", compile=ruins), whole("rest")]
    with pytest.warns(KeelWarning):
        plan, parts = compiled(backends, lambda x: ((x @ x).relu() @ x,))
    assert seen == ["aten.mm.default"] * 2 and [p.owner.name for p in plan.parts] == ["half", "rest", "half"]
    x = torch.randn(3, 3)
    assert torch.equal(parts[1].run(x)[0], x.relu())


def test_those_who_fail_too_are_passed_over() -> None:
    backends = [takes("mm", "add", name=n, compile=ruins) for n in ("a", "b")] + [whole("rest")]
    with pytest.warns(KeelWarning) as warned:
        compiled(backends)
    assert [str(w.message).split()[1] for w in warned] == ["a", "b"]


def chain(x: torch.Tensor) -> tuple[torch.Tensor]:
    """Thirty-four products, each followed by what another backend takes."""
    for _ in range(34):
        x = (x @ x).relu()
    return (x,)


def test_many_parts_that_fail_alike_are_one_warning_with_their_number() -> None:
    with pytest.warns(KeelWarning) as warned:
        plan, _ = compiled([takes("mm", name="acme", compile=ruins), whole("rest")], chain)
    assert len(warned) == 1 and [p.owner.name for p in plan.parts] == ["rest"]
    assert "acme could not compile 34 parts of 34 calls" in str(warned[0].message)
    assert "rest compiles it instead" in str(warned[0].message)


def test_however_many_parts_fail_the_graph_is_placed_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[Any] = []

    def replan(gm: fx.GraphModule, backends: Any, refusals: Any, **more: Any) -> Plan:
        placed.append(refusals)
        return place(gm, backends, refusals)

    monkeypatch.setattr(selection, "replan", replan)
    with pytest.warns(KeelWarning):
        compiled([takes("mm", name="acme", compile=ruins), whole("rest")], chain)
    (refusals,) = placed
    assert sum("could not compile" in str(by.get("acme")) for by in refusals.values()) == 34


def test_of_several_that_fail_the_error_is_of_the_one_whose_calls_nobody_else_takes() -> None:
    def fails(gm: fx.GraphModule) -> Any:
        raise ValueError(" ".join(sorted(str(n.target) for n in gm.graph.nodes if n.op == "call_function")))

    backends = [
        takes("mm", "relu", "exp", name="acme", compile=fails),
        takes("sin", name="half"),
        takes("mm", "exp", name="rest"),
    ]
    with pytest.raises(KeelError, match=r"acme: ValueError: aten\.relu") as raised:
        compiled(backends, lambda x: ((x @ x).sin().relu().sin().exp(),))
    assert raised.value.code == "compile-raised"


class Odd(BaseException):
    pass


def spoils(gm: fx.GraphModule) -> Any:
    """Changes all that it is given, and fails."""
    for node in reversed(list(gm.graph.nodes)):
        node.meta.clear()
        node.target = "gone" if node.op != "call_function" else torch.relu
        node.name = "odd"
    gm.meta.clear()
    gm.graph = fx.Graph()
    raise Odd("odd")


def quits(gm: fx.GraphModule) -> Any:
    raise SystemExit("no license")


async def later(gm: fx.GraphModule) -> Any:
    return gm.forward


@pytest.mark.parametrize(
    ("compile", "said"),
    [
        (ruins, "ValueError: no memory"),
        (spoils, "Odd: odd"),
        (quits, "SystemExit: no license"),
        (lambda gm: None, "returned NoneType"),
        (lambda gm: later(gm), "returned coroutine"),
    ],
)
def test_whatever_goes_wrong_costs_the_backend_its_part(compile: Any, said: str) -> None:
    x = torch.randn(3, 3)
    with pytest.warns(KeelWarning, match=said):
        plan, parts = compiled([takes("mm", name="acme", compile=compile), whole("rest")])
    assert [p.owner.name for p in plan.parts] == ["rest"]
    torch.testing.assert_close(parts[0].run(x), (x @ x + 1,))
    with pytest.raises(KeelError, match=said):
        compiled([takes("mm", name="acme", compile=compile), whole("rest")], strict=True)


def test_what_is_the_users_goes_through() -> None:
    def interrupted(gm: fx.GraphModule) -> Any:
        raise KeyboardInterrupt

    def timed(gm: fx.GraphModule) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(5)

    def ends(number: int, frame: Any) -> None:
        raise SystemExit("the user's")

    with pytest.raises(KeyboardInterrupt):
        compiled([takes("mm", name="acme", compile=interrupted), whole("rest")])
    before = signal.signal(signal.SIGUSR1, ends)
    try:
        with pytest.raises(SystemExit, match="the user's"):
            compiled([takes("mm", name="acme", compile=timed), whole("rest")])
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("strict", [False, True])
def test_nobody_else_or_strict_is_an_error(strict: bool) -> None:
    backends = [takes("mm", "add", name="acme", compile=ruins)] + [whole("rest")] * strict
    with pytest.raises(KeelError, match=r"acme: ValueError: no memory\n") as raised:
        compiled(backends, strict=strict)
    assert raised.value.code == "compile-raised" and isinstance(raised.value.__cause__, ValueError)


def test_something_that_cannot_be_called_is_a_failure() -> None:
    with pytest.raises(KeelError, match=r"TypeError: `compile` returned NoneType, not a callable\."):
        compiled([takes("mm", "add", name="acme", compile=lambda gm: None)])
