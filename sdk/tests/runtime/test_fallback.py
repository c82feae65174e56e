"""Who compiles a part that its owner cannot."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from keel import Backend, KeelError, KeelWarning
from keel.partition import place, split
from keel.runtime.fallback import compile_part

from ..line import takes, trace, whole


def ruins(gm: fx.GraphModule) -> Any:
    for node in reversed(gm.graph.nodes):
        gm.graph.erase_node(node)
    raise ValueError("no memory\nfor this")


def compiled(backends: list[Backend], **more: Any) -> Any:
    gm = trace(lambda x: (x @ x + 1,), torch.randn(3, 3))
    plan = place(gm, backends)
    first = split(gm, plan)[0]
    return compile_part(gm, plan, first, strict=more.get("strict", False), meta={"told": 1}), first


def test_the_next_who_takes_all_calls_gets_a_graph_that_nobody_touched() -> None:
    given = []
    backends = [takes("mm", "add", name="acme", compile=ruins), takes("mm", name="half"),
                takes("mm", "add", name="next", compile=lambda gm: given.append(gm) or gm.forward), whole("rest")]
    with pytest.warns(KeelWarning, match="acme could not compile part p0 of 2 calls"):
        made, part = compiled(backends)
    x = torch.randn(3, 3)
    torch.testing.assert_close(made.run(x), (x @ x + 1,))
    assert given[0].meta["told"] == 1 and made.inputs == part.inputs


def test_those_who_fail_too_are_passed_over() -> None:
    backends = [takes("mm", "add", name=n, compile=ruins) for n in ("a", "b")] + [whole("rest")]
    with pytest.warns(KeelWarning) as warned:
        compiled(backends)
    assert [str(w.message).split()[1] for w in warned] == ["a", "b"]


@pytest.mark.parametrize("strict", [False, True])
def test_nobody_else_or_strict_is_an_error(strict: bool) -> None:
    backends = [takes("mm", "add", name="acme", compile=ruins)] + [whole("rest")] * strict
    with pytest.raises(KeelError, match=r"acme: ValueError: no memory\n") as raised:
        compiled(backends, strict=strict)
    assert raised.value.code == "compile-raised" and isinstance(raised.value.__cause__, ValueError)


def test_something_that_cannot_be_called_is_a_failure() -> None:
    with pytest.raises(KeelError, match=r"TypeError: `compile` returned NoneType, not a callable\."):
        compiled([takes("mm", "add", name="acme", compile=lambda gm: None)])
