"""Backward graphs write over saved tensors that nobody else sees. Gradients are compared with eager PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._C._dynamo.eval_frame import set_eval_frame
from torch.autograd.graph import saved_tensors_hooks

import keel
import keel_interp
from keel import Backend
from keel.loop_level import compile_part, refuse, schedule_part
from keel.plugin import CompileContext
from keel.torch_adapter import donated, owned


@pytest.fixture
def overwritten(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The saved tensors that graphs did not copy before they wrote to them."""
    counted: list[Tensor] = []

    def count(changed: Any) -> None:
        if isinstance(changed, Tensor):  # some versions of PyTorch give it other things
            counted.append(changed)

    monkeypatch.setattr(donated.torch.autograd.graph, "increment_version", count)
    return counted


class Doubles(torch.autograd.Function):
    """Returns ``2 * x``. Backward owns the tensor that forward saved, and tells ``look`` if it has the same memory."""

    look: Callable[[bool], Any]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x + 1)
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (saved,) = ctx.saved_tensors
        before = saved.data_ptr()
        saved = owned(saved)
        Doubles.look(saved.data_ptr() == before)
        return 2 * gradients[0]


def doubled() -> Tensor:
    result: Tensor = Doubles.apply(torch.ones(3, requires_grad=True))  # type: ignore[no-untyped-call]
    return result.sum()


@pytest.fixture
def itself(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each backward pass of ``Doubles`` was given the saved tensor itself."""
    answers: list[bool] = []
    monkeypatch.setattr(Doubles, "look", answers.append, raising=False)
    return answers


def test_a_tensor_that_only_autograd_saved_is_not_copied(itself: list[bool]) -> None:
    doubled().backward()
    assert itself == [True]


def test_counts_are_right_while_dynamo_evaluates_frames(itself: list[bool]) -> None:
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        held.append(tensor)
        return tensor

    alone = doubled()
    with saved_tensors_hooks(pack, lambda t: t):
        seen = doubled()
    before = set_eval_frame(False)  # Python calls Dynamo for each frame, which runs it as it is
    try:
        alone.backward()
        seen.backward()
    finally:
        set_eval_frame(before)
    assert itself == [True, False]


def test_a_tensor_of_a_retained_graph_is_copied(itself: list[bool]) -> None:
    loss = doubled()
    loss.backward(retain_graph=True)
    loss.backward()
    assert itself == [False, True]


def test_a_tensor_that_a_hook_holds_is_copied(itself: list[bool]) -> None:
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        held.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda t: t):
        loss = doubled()
    loss.backward()
    assert itself == [False]


def test_a_tensor_whose_memory_somebody_holds_is_copied(itself: list[bool]) -> None:
    held: dict[int, Tensor] = {}
    shared: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        shared.append(tensor)
        held[len(held)] = tensor.detach()
        return len(held) - 1

    with saved_tensors_hooks(pack, lambda number: held.pop(number)):
        loss = doubled()
    loss.backward()
    assert itself == [False]


def test_outside_of_a_backward_pass_a_tensor_is_copied() -> None:
    tensor = torch.ones(3)
    assert owned(tensor) is not tensor


def test_a_backward_that_failed_after_an_overwrite_does_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(itself: bool) -> None:
        raise ValueError(f"{itself}: out of memory")

    monkeypatch.setattr(Doubles, "look", fail, raising=False)
    result: Tensor = Doubles.apply(torch.ones(3, requires_grad=True))  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="True: out of memory"):
        result.sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


# -- compiled functions ------------------------------------------------------------------------------------------------


def losses(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(x @ w, torch.arange(x.shape[0]) % w.shape[1])


def returns_what_it_saves(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = x @ w
    return y, y.tanh().exp()


def saves_views(x: Tensor, w: Tensor) -> Tensor:
    y = (x @ w).exp()
    return (y * y.t()).sin()


def saves_inputs(x: Tensor, w: Tensor) -> Tensor:
    return x.sin() * w.cos()


def gradients(fn: Callable[..., Any], args: list[Tensor], retain: bool = False) -> list[Tensor]:
    args = [a.clone().requires_grad_() for a in args]
    results = fn(*args)
    loss = sum(r.square().sum() for r in (results if isinstance(results, tuple) else [results]))
    assert isinstance(loss, Tensor)
    loss.backward(retain_graph=retain)
    if retain:
        loss.backward()
    return [a.grad for a in args if a.grad is not None]


PROGRAMS = [losses, returns_what_it_saves, saves_views, saves_inputs]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def arguments() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(5, 5), torch.randn(5, 5)]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_right(program: Callable[..., Any], dynamic: bool) -> None:
    compiled = keel.compile(program, backends=[keel_interp.backend], strict=True, dynamic=dynamic)
    for retain in (False, False, True):
        torch.testing.assert_close(gradients(compiled, arguments(), retain), gradients(program, arguments(), retain))


@pytest.mark.parametrize("hooks", [False, True], ids=["", "hooks"])
def test_saved_tensors_are_overwritten_unless_a_hook_holds_them(overwritten: list[Tensor], hooks: bool) -> None:
    compiled = keel.compile(losses, backends=[keel_interp.backend], strict=True)
    gradients(compiled, arguments())  # the first call is checked, which takes references to its arguments
    overwritten.clear()
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        held.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda t: t) if hooks else nullcontext():
        x, w = (a.requires_grad_() for a in arguments())
        loss = compiled(x, w)
    before = [t.clone() for t in held]
    loss.backward()
    assert bool(overwritten) is not hooks
    torch.testing.assert_close(held, before, rtol=0, atol=0)


def donated_inputs(fn: Callable[..., Any]) -> int:
    """How many saved tensors the kernels of a program overwrite."""
    counts: list[int] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        counts.append(len(schedule_part(keel_interp.target, gm, ctx).donated))
        return compile_part(keel_interp.target, gm, ctx)

    def supports(call: keel.Call) -> Any:
        return refuse(keel_interp.target, call)

    interp = Backend(name="counted", device="cpu", supports=supports, compile=compile)
    gradients(keel.compile(fn, backends=[interp], placement="order"), arguments())
    return sum(counts)


def test_what_the_program_sees_is_not_overwritten() -> None:
    assert donated_inputs(losses) == 1
    assert donated_inputs(saves_inputs) == 0
    assert donated_inputs(returns_what_it_saves) <= 1  # the exponential, which the program gets, is not


def test_calls_that_are_checked_overwrite_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CHECK", "1")
    assert donated_inputs(losses) == 0
