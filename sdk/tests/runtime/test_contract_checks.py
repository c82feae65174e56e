"""Promises and how they are broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
from keel import Backend, KeelError
from keel.runtime.contract_checks import check_every_call, check_first_call, contract_of

from ..line import takes, trace, whole

R = torch.randn


def sums(x: Tensor, y: Tensor) -> Any:
    return x + y, x * y, x.t()


@pytest.fixture
def part() -> Any:
    return trace(sums, R(3, 3), R(3, 3))


def test_what_keeps_its_promise_passes(part: Any) -> None:
    made = contract_of(part, "acme", "p0")
    x, y = R(3, 3), R(3, 3)
    for check in (check_first_call, check_every_call):
        torch.testing.assert_close(check(part.forward, made)(x, y), sums(x, y))


def test_views_may_be_views_and_need_not_be(part: Any) -> None:
    made = contract_of(part, "acme", "p0")
    copies = check_every_call(lambda x, y: (x + y, x * y, x.t().contiguous().t().clone()), made)
    with pytest.raises(KeelError, match="strides"):
        check_every_call(lambda x, y: (x + y, x * y, x.t().contiguous()), made)(R(3, 3), R(3, 3))
    copies(R(3, 3), R(3, 3))


def test_inputs_that_share_memory_may_be_seen_in_several_outputs() -> None:
    made = contract_of(trace(lambda x, y: (x.t(), y.t()), R(3, 3), R(3, 3)), "acme", "p0")
    x = R(2, 3, 3)
    check_every_call(lambda x, y: (x.t(), y.t()), made)(x[0], x[1])


@pytest.mark.parametrize(
    "broken",
    [
        lambda x, y: (x.add_(y), x * y, x.t()),
        lambda x, y: (x, x * y, x.t()),
        lambda x, y: (both := x + y, both, x.t()),
        lambda x, y: (x + y, (x * y).sum(), x.t()),
    ],
    ids=["writes", "is an input", "one memory", "shape"],
)
def test_what_breaks_its_promise_is_told(part: Any, broken: Callable[..., Any], golden: Callable[..., None]) -> None:
    with pytest.raises(KeelError) as raised:
        check_every_call(broken, contract_of(part, "acme", "p0"))(R(3, 3), R(3, 3))
    golden(str(raised.value))


def test_a_write_of_nan_over_nan_is_none_and_of_other_bits_is_one() -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(2)), "acme", "p0")

    def flips(x: Tensor) -> Any:
        found = x + 1
        x.neg_()  # 0 becomes -0, which compares equal
        return (found,)

    check_every_call(lambda x: (x + 1,), made)(torch.tensor([float("nan"), 0.0]))
    with pytest.raises(KeelError, match="It wrote to input 0"):
        check_every_call(flips, made)(torch.tensor([float("nan"), 0.0]))


def returns(*tensors: Tensor) -> Callable[..., Any]:
    """A part that gives these, one a call, in turns."""
    turn = iter(range(1 << 30))
    return lambda x: (tensors[next(turn) % len(tensors)].copy_(x + 1),)


def test_a_buffer_that_is_returned_again_while_its_result_is_alive_is_told() -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(2)), "acme", "p0")
    double = check_every_call(returns(torch.empty(2), torch.empty(2)), made)
    first, second = double(R(2)), double(R(2))
    with pytest.raises(KeelError, match="shares memory with a result of an earlier call") as raised:
        double(R(2))
    assert raised.value.code == "wrong-result" and "%add" in str(raised.value) and first is not second


@pytest.mark.parametrize("kept", [lambda y: y[1:], lambda y: y.view(1, 2)])
def test_a_view_keeps_its_result_alive(kept: Callable[..., Any]) -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(2)), "acme", "p0")
    memory = torch.empty(2)
    check = check_every_call(lambda x: (memory.detach().copy_(x + 1),), made)
    view = kept(check(R(2))[0])
    with pytest.raises(KeelError, match="of an earlier call"):
        check(R(2))
    assert view.numel()


def test_memory_may_be_used_again_once_nobody_has_its_result() -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(2)), "acme", "p0")
    memory = torch.empty(2)
    check = check_every_call(lambda x: (memory.detach().copy_(x + 1),), made)
    for _ in range(200):
        check(R(2))


def test_results_may_pile_up() -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(2)), "acme", "p0")
    check = check_every_call(lambda x: (x + 1,), made)
    held = [check(R(2)) for _ in range(300)]
    assert len({r.data_ptr() for (r,) in held}) == 300


def test_an_input_that_is_given_back_twice_is_nobody_s_buffer() -> None:
    made = contract_of(trace(lambda x: (x.t(), x + 1), R(2, 2)), "acme", "p0")
    check = check_every_call(lambda x: (x.t(), x + 1), made)
    x = R(2, 2)
    held = [check(x) for _ in range(3)]
    assert all(torch.equal(view, x.t()) for view, _ in held)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (lambda x: (torch.nn.Parameter(x + 1, requires_grad=False),), "is a torch.nn.Parameter, not a plain tensor"),
        (lambda x: (torch.nn.Parameter(x + 1),), "is a torch.nn.Parameter, not a plain tensor"),
        (lambda x: ((x + 1).requires_grad_(),), "requires grad"),
        (lambda x: (x + torch.ones(2, requires_grad=True),), "requires grad"),
    ],
    ids=["parameter", "parameter that requires grad", "leaf", "of a weight"],
)
def test_a_result_is_a_plain_value(broken: Callable[..., Any], sentence: str) -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(2)), "acme", "p0")
    with pytest.raises(KeelError, match=sentence) as raised:
        check_every_call(broken, made)(R(2))
    assert raised.value.code == "wrong-result"
    broken_without_autograd = check_every_call(lambda x: ((x + 1).requires_grad_(),), made)
    with torch.no_grad(), pytest.raises(KeelError, match="requires grad"):
        broken_without_autograd(R(2).requires_grad_())


class Acme(torch.Tensor):
    """What a vendor may call its tensors."""


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (lambda x: (torch._neg_view(-x - 1),), "the values with the other sign"),
        (torch.inference_mode(lambda x: (x + 1,)), "is an inference tensor"),
        (lambda x: ((x + 1).as_subclass(Acme),), "is a Acme, a subclass"),
    ],
    ids=["negative", "inference", "subclass"],
)
def test_a_result_that_its_readers_take_for_another_is_told_on_the_first_call(
    broken: Callable[..., Any], sentence: str
) -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(2)), "acme", "p0")
    for check in (check_first_call, check_every_call):
        with pytest.raises(KeelError, match=sentence) as raised:
            check(broken, made)(R(2))
        assert raised.value.code == "wrong-result"


def test_kernels_never_read_a_negative_that_is_left_to_them() -> None:
    sines = keel.Support((keel.Rule(ops=("aten.sin",)),))
    lazy = Backend(
        name="acme",
        device="cpu",
        supports=sines,
        compile=lambda gm: lambda *args: tuple(torch._neg_view(-r) for r in gm(*args)),
    )
    with pytest.raises(KeelError, match="the values with the other sign"):
        keel.compile(lambda x: x.sin() + 1, backends=[lazy, "cpp"])(R(4))
    x = R(4)
    torch.testing.assert_close(keel.compile(lambda x: torch.complex(x, x).conj().imag.sin() + 1)(x), (-x).sin() + 1)


def test_a_result_may_be_of_the_kind_of_what_it_is_made_of() -> None:
    made = contract_of(trace(lambda x: (x.t(),), R(2, 2)), "acme", "p0")
    check_first_call(lambda x: (x.t(),), made)(R(2, 2).as_subclass(Acme))
    with torch.inference_mode():
        x = R(2, 2)
        check_first_call(lambda x: (x.t(),), made)(R(2, 2))
    check_first_call(lambda x: (x.t(),), made)(x)


def test_what_autograd_tracks_may_require_grad_and_a_parameter_may_be_given_back() -> None:
    made = contract_of(trace(lambda x: (x + 1, x.t()), R(2, 2)), "acme", "p0")
    check = check_every_call(lambda x: (x + 1, x.t()), made)
    assert check(R(2, 2).requires_grad_())[0].requires_grad
    with torch.no_grad(), torch.autograd._force_original_view_tracking(True):  # as AOTAutograd calls parts
        assert check_every_call(lambda x: (x + 1, x.t()), made)(R(2, 2).requires_grad_())[1].requires_grad
    same = contract_of(trace(lambda x: (x, x + 1), R(2)), "acme", "p0")
    weight = torch.nn.Parameter(R(2))
    assert check_every_call(lambda x: (x, x + 1), same)(weight)[0] is weight


def test_sizes_are_checked_with_the_values_of_their_symbols() -> None:
    made = contract_of(trace(lambda x: (x.new_ones(x.shape[0] * 2),), R(4, 5), symbolic=True), "acme", "p0")
    check = check_every_call(lambda x: (torch.ones(x.shape[0] * 2),), made)
    check(R(7, 3))
    with pytest.raises(KeelError, match=r"Its shape is \[8\], not \[14\]"):
        check_every_call(lambda x: (torch.ones(8),), made)(R(7, 3))


def test_strides_of_single_elements_and_of_nothing_do_not_matter() -> None:
    made = contract_of(trace(lambda x: (x + 1,), R(1, 4)), "acme", "p0")
    check_first_call(lambda x: (torch.empty_strided((1, 4), (77, 1)),), made)(R(1, 4))
    none = contract_of(trace(lambda x: (x + 1,), R(0, 4)), "acme", "p0")
    check_first_call(lambda x: (torch.empty_strided((0, 4), (5, 7)),), none)(R(0, 4))


def spoils_later(gm: Any) -> Any:
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(0)
        found = gm.forward(*args)
        return found if len(calls) < 3 else (found[0].double(),)

    return run


@pytest.mark.parametrize("always", [False, True], ids=["first call", "KEEL_CHECK=1"])
def test_the_variable_asks_for_all_checks_on_all_calls(always: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CHECK", "1" if always else "0")
    torch.compiler.reset()
    backends: list[Backend] = [takes("mm", name="acme", compile=spoils_later), whole()]
    run = keel.compile(lambda x: x @ x, backends=backends)
    run(R(3, 3))
    run(R(3, 3))
    if always:
        with pytest.raises(KeelError, match=r"Its dtype is torch\.float64"):
            run(R(3, 3))
    else:
        assert run(R(3, 3)).dtype == torch.float64
