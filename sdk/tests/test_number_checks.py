"""KEEL_CHECK=numbers: alarms about wrong numbers, none about right ones, and calls that are checked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
from keel import Backend, KeelError, KeelWarning
from keel.number_checks import GUESS, SHARE, CheckClock, checked_share

from .line import whole


def wrong_sigmoid(gm: Any) -> Callable[..., Any]:
    """Runs a graph with a sigmoid that is a little off."""

    def run(*args: Any) -> Any:
        return tuple(r * 1.001 if r.is_floating_point() else r for r in gm.forward(*args))

    return run


def model(x: Tensor) -> Tensor:
    return torch.sigmoid(x @ x.t())


@pytest.fixture
def all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CHECK", "numbers:all")


@pytest.mark.slow
@pytest.mark.usefixtures("all_numbers")
def test_wrong_numbers_give_one_warning_for_a_part() -> None:
    acme = Backend(name="acme", device="cpu", supports=lambda call: None, compile=wrong_sigmoid)
    run = keel.compile(model, backends=[acme])
    with pytest.warns(KeelWarning, match="acme computed wrong numbers in part p0") as caught:
        for _ in range(3):
            run(torch.randn(4, 4))
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "is allowed" in text and "eager PyTorch is off by" in text and "aten.sigmoid" in text
    assert "return torch.sigmoid(x @ x.t())" in text and "keel compare" in text


@pytest.mark.slow
@pytest.mark.usefixtures("all_numbers")
def test_under_strict_wrong_numbers_are_an_error() -> None:
    acme = Backend(name="acme", device="cpu", supports=lambda call: None, compile=wrong_sigmoid)
    with pytest.raises(KeelError, match="wrong numbers"):
        keel.compile(model, backends=[acme], strict=True)(torch.randn(4, 4))


@pytest.mark.slow
@pytest.mark.usefixtures("all_numbers")
@pytest.mark.parametrize("boxed", [False, True])
def test_right_numbers_give_no_warning_in_training(boxed: bool) -> None:
    def compile(gm: Any) -> Any:
        def run(*args: Any) -> Any:
            return gm.forward(*args)

        def take(args: list[Any]) -> Any:
            inputs = tuple(args)
            args.clear()
            return gm.forward(*inputs)

        if boxed:
            run.boxed = take  # type: ignore[attr-defined]
        return run

    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    acme = Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile)
    run = keel.compile(net, backends=[acme])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            run(torch.randn(4, 8)).square().sum().backward()


@pytest.mark.slow
def test_nothing_is_checked_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEEL_CHECK", raising=False)
    acme = Backend(name="acme", device="cpu", supports=lambda call: None, compile=wrong_sigmoid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keel.compile(model, backends=[acme])(torch.randn(4, 4))


@pytest.mark.parametrize(
    ("text", "share"),
    [("", None), ("1", None), ("numbers", SHARE), ("1,numbers:0.1", 0.1), ("numbers:all", math.inf)],
)
def test_the_variable_says_how_much_time_checks_may_take(
    monkeypatch: pytest.MonkeyPatch, text: str, share: float | None
) -> None:
    monkeypatch.setenv("KEEL_CHECK", text)
    assert checked_share() == share


@pytest.mark.parametrize("text", ["numbers:much", "numbers:-1", "numbers:nan"])
def test_a_share_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KEEL_CHECK", text)
    with pytest.raises(KeelError, match="cannot be read"):
        checked_share()


@pytest.mark.parametrize("slow", [0.5, 5.0])
def test_checks_take_their_share_of_the_time_and_parts_take_turns(slow: float) -> None:
    """Simulates parts whose checks take ``slow`` times the first guess."""
    clock = CheckClock(0.02)
    parts: list[Any] = [SimpleNamespace(cost=math.inf, calls=0, seconds=s, checks=0) for s in (0.01, 0.001, 0.1)]
    clock.queue.extend(parts)
    for _ in range(20_000):
        for part in parts:
            clock.ran(part, part.seconds)
            if clock.is_due(part):
                part.checks += 1
                clock.checked(part, GUESS * slow * part.seconds)
    assert 0.5 * 0.02 < clock.spent / clock.busy < 1.1 * 0.02
    assert min(part.checks for part in parts) > 0
    assert max(part.checks for part in parts) - min(part.checks for part in parts) <= 1


@pytest.mark.slow
def test_a_part_that_cannot_be_judged_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CHECK", "numbers:all")

    def raising(*args: Any, **more: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("keel.number_checks.judge_part", raising)
    run = keel.compile(model, backends=[whole()])
    x = torch.randn(4, 4)
    with pytest.warns(KeelWarning, match="is not checked: RuntimeError: out of memory"):
        torch.testing.assert_close(run(x), model(x))
