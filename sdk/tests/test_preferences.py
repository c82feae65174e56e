"""A backend may leave calls that it takes to others: ``Backend.prefers``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
from keel import Backend, Call, KeelError, KeelWarning


def backend(name: str, owned: dict[str, str], prefers: Callable[[Call], Any] | None = None, **more: Any) -> Backend:
    def compile(gm: fx.GraphModule) -> Any:
        owned.update({str(n.target): name for n in gm.graph.nodes if n.op == "call_function"})
        return gm

    return Backend(name=name, device="cpu", supports=lambda call: None, compile=compile, prefers=prefers, **more)


def products_only(call: Call) -> bool:
    return call.name == "aten.mm.default"


def program(x: Tensor) -> Tensor:
    return (x @ x).sin()


def owners(*backends: Backend, owned: dict[str, str], strict: bool = True) -> dict[str, str]:
    torch.compiler.reset()
    run = keel.compile(program, backends=backends, strict=strict, placement="order")
    x = torch.ones(2, 2)
    torch.testing.assert_close(run(x), program(x))
    return owned


def test_a_call_goes_to_the_next_backend_that_prefers_it() -> None:
    owned: dict[str, str] = {}
    first, second = backend("first", owned, products_only), backend("second", owned)
    assert owners(first, second, owned=owned) == {"aten.mm.default": "first", "aten.sin.default": "second"}


def test_it_stays_where_no_other_backend_takes_it() -> None:
    owned: dict[str, str] = {}
    first = backend("first", owned, products_only)
    assert owners(first, owned=owned) == {"aten.mm.default": "first", "aten.sin.default": "first"}


def test_a_last_resort_does_not_get_it() -> None:
    owned: dict[str, str] = {}
    first, last = backend("first", owned, products_only), backend("last", owned, last_resort=True)
    assert owners(first, last, owned=owned) == {"aten.mm.default": "first", "aten.sin.default": "first"}


def test_an_answer_that_is_no_bool_is_a_fault_of_the_plugin() -> None:
    owned: dict[str, str] = {}
    backends = backend("first", owned, lambda call: "yes"), backend("second", owned)
    with pytest.warns(KeelWarning, match="first could not say whether it prefers"):
        assert set(owners(*backends, owned=owned, strict=False).values()) == {"first"}
    with pytest.raises(KeelError) as raised:
        owners(*backends, owned=owned)
    assert raised.value.code == "refuse-raised"
