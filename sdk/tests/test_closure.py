"""What a program ends in, and by name what stays outside the operator set."""

from __future__ import annotations

from typing import Any

import torch

from keel import closure, universe
from keel.graph.legalize import legalize, unclaimed_calls
from keel.plugin import Backend
from keel.torch_adapter import Captured


def endings(fn: Any, *inputs: torch.Tensor) -> tuple[list[closure.Ending], Any]:
    ends: list[closure.Ending] = []

    def watch(captured: Captured) -> closure.Ending:
        ends.append(closure.ending(captured))
        return ends[-1]

    return ends, universe.trace(fn, inputs, closure.watching(watch))


def test_composites_are_written_out_and_run() -> None:
    x = torch.randn(4, 6)
    with torch.no_grad():
        ends, run = endings(lambda x: (torch.nn.functional.gelu(x),), x)
        torch.testing.assert_close(run(x), (torch.nn.functional.gelu(x),))
    assert [e.kind for e in ends] == ["inference"] and ends[0].outside == () and ends[0].seconds > 0
    assert {c.name for c in ends[0].calls} >= {"aten.erf.default", "aten.mul.Tensor"}
    assert "aten.gelu.default" not in {c.name for c in ends[0].calls}


def test_what_stays_outside_is_named_and_still_runs() -> None:
    x = torch.tensor([1.0, 2.0])
    with torch.no_grad():
        ends, run = endings(lambda x: (torch.ops.aten._foobar(x.sin()),), x)
        torch.testing.assert_close(run(x), (x.sin(),))
    ((call, why),) = ends[0].outside
    assert call.name == "aten._foobar.default"
    assert why.startswith("aten._foobar.default is not in the operator set. It is left out of the opset")


def test_operators_of_other_packages_are_left_as_they_are() -> None:
    x = torch.tensor([1.0, 2.0])
    with torch.library._scoped_library("keel_closure_tests", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("twice", torch.empty_like, "Meta")
        with torch.no_grad():
            ends, run = endings(lambda x: (torch.ops.keel_closure_tests.twice(x.sin()),), x)
            torch.testing.assert_close(run(x), (x.sin() * 2,))
        assert ends[0].foreign == ("keel_closure_tests.twice.default",) and ends[0].outside == ()
        assert [c.name for c in ends[0].calls] == ["aten.sin.default", "keel_closure_tests.twice.default"]


def test_a_primitive_out_of_its_dtypes_is_outside() -> None:
    backend = closure.opset_backend()
    assert callable(backend.supports)
    seen: list[Captured] = []

    def compiler(captured: Captured) -> Any:
        seen.append(captured)
        return lambda args: captured.gm(*args)

    with torch.no_grad():
        universe.trace(lambda x: (x.lgamma(),), [torch.ones(3)], compiler)
    assert unclaimed_calls(seen[0], [backend]) == []
    assert [
        c.name
        for c, _ in unclaimed_calls(
            seen[0], [Backend(name="none", device="*", supports=lambda c: "No.", compile=lambda gm: gm.forward)]
        )
    ] == ["aten.lgamma.default"]
    assert len(legalize(seen[0], [backend]).gm.graph.nodes) == 3


def test_dynamo_may_be_in_front() -> None:
    ends: list[closure.Ending] = []

    def watch(captured: Captured) -> closure.Ending:
        ends.append(closure.ending(captured))
        return ends[-1]

    torch.compiler.reset()
    x = torch.randn(5, requires_grad=True)
    torch.compile(lambda x: x.sigmoid().sum(), backend=closure.dynamo_backend(watch))(x).backward()
    assert [e.kind for e in ends] == ["forward", "backward"]
    torch.testing.assert_close(x.grad, x.sigmoid() * (1 - x.sigmoid()))
