"""Backends that ``torch.compile`` finds by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import keel.dynamo
from keel import KeelError

X = torch.linspace(-1, 1, 6)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def fn(x: Tensor) -> Tensor:
    return x.sin() * 2


def named(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(keel.dynamo, name)
    return found


def test_the_backend_of_that_name_compiles() -> None:
    x = X.clone().requires_grad_()
    found, wanted = torch.compile(fn, backend=named("interp"), options={"strict": True})(x), fn(x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_equal_names_are_the_same_backend() -> None:
    """Dynamo compares backends to reuse what it has compiled."""
    assert named("interp") is named("interp") is not named("cpp")


def test_a_name_that_no_backend_has_is_said_when_a_graph_is_compiled() -> None:
    with pytest.raises(KeelError, match="no installed backend is named 'intrep'") as caught:
        torch.compile(fn, backend=named("intrep"))(X)
    assert caught.value.code == "unknown-backend" and caught.value.do == "Did you mean 'interp'?"


@torch.library.custom_op("keel_dynamo::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_eager_pytorch_runs_what_the_backend_refuses() -> None:
    torch.testing.assert_close(torch.compile(lambda x: twice(x.sin()), backend=named("interp"))(X), fn(X))
    with pytest.raises(KeelError, match=r"keel_dynamo\.twice") as caught:
        torch.compile(lambda x: twice(x.cos()), backend=named("interp"), options={"strict": True})(X)
    assert caught.value.code == "no-owner" and "interp" in str(caught.value) and "cpp" not in str(caught.value)


def test_options_are_keels() -> None:
    with pytest.raises(KeelError, match="There is no option 'strikt'"):
        torch.compile(fn, backend=named("interp"), options={"strikt": True})(X)
    with pytest.raises(KeelError, match=r"backends=\[\] leaves no backend"):
        torch.compile(fn, backend=named("interp"), options={"strict": True, "backends": []})(X)


def test_modes_are_keels() -> None:
    torch.testing.assert_close(torch.compile(fn, backend=named("interp"), mode="reduce-overhead")(X), fn(X))
    with pytest.raises(KeelError, match="There is no mode 'fastest'"):
        torch.compile(fn, backend=named("interp"), mode="fastest")(X)


def test_private_names_are_attributes_like_any_others() -> None:
    with pytest.raises(AttributeError, match=r"module 'keel\.dynamo' has no attribute '__path__'"):
        keel.dynamo.__path__  # noqa: B018
