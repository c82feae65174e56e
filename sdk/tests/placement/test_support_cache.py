"""A backend whose answers are not to be relied on costs itself, with one warning, and not the program."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import keel
from keel import Backend, Call, Cost, Extern, KeelError, KeelWarning, LoopTarget, Rule, Support, loop_backend

X = torch.randn(4, 4)


@pytest.fixture(autouse=True)
def afresh() -> None:
    torch.compiler.reset()


def program(x: torch.Tensor) -> torch.Tensor:
    """Thirteen calls that differ."""
    for i in range(10):
        x = (x * 1.5 + i).sin()
    return x @ x


def acme(supports: Any = lambda call: None, **more: Any) -> Backend:
    return Backend(**{"name": "acme", "device": "cpu", "supports": supports, "compile": lambda gm: gm.forward, **more})


def told(backends: list[Any], **more: Any) -> list[str]:
    """The warnings of a compilation whose result is right."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        got = keel.compile(program, backends=backends, **more)(X)
    torch.testing.assert_close(got, program(X))
    return [str(w.message) for w in warned if issubclass(w.category, KeelWarning)]


def raises(call: Call) -> None:
    raise KeyError(call.name)


def quits(call: Call) -> None:
    raise SystemExit(3)


async def later(call: Call) -> None:
    return None


RUBBISH: dict[str, tuple[Callable[[Call], Any], str]] = {
    "raises": (raises, "KeyError: 'aten.mul.Tensor'"),
    "quits": (quits, "SystemExit: 3"),
    "a coroutine": (lambda call: later(call), "returned a coroutine"),
    "nothing said": (lambda call: "", "returned ''"),
    "blanks": (lambda call: "  ", "returned '  '"),
    "a number": (lambda call: 0, "returned 0"),
    "yes": (lambda call: True, "returned True"),
    "a list": (lambda call: ["No."], "returned ['No.']"),
    "an empty refusal": (lambda call: keel.Refusal(""), "empty sentence"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RUBBISH)
@pytest.mark.parametrize("how", ["supports", "when"])
def test_no_answer_is_a_refusal_and_one_warning(case: str, how: str) -> None:
    answer, said = RUBBISH[case]
    backend = acme(answer if how == "supports" else Support((Rule(ops=("*",), when=answer),)))
    [warning] = told([backend, "eager"])
    assert "acme could not say whether it takes 13 calls, the first of which is aten.mul.Tensor(" in warning
    assert said in warning
    with pytest.raises(KeelError, match="refuse-raised"):
        keel.compile(program, backends=[backend, "eager"], strict=True)(X + 1)


def test_each_kind_of_failure_is_told() -> None:
    def supports(call: Call) -> None:
        raise KeyError(call.name) if "sin" in call.name else ValueError(call.name)

    several, one = told([acme(supports), "eager"])
    assert "acme could not say whether it takes 12 calls" in several and "ValueError: aten.mul.Tensor" in several
    assert "acme could not say whether it takes aten.sin.default(" in one and "KeyError" in one


def test_an_extern_that_refuses_by_raising() -> None:
    target = LoopTarget(
        name="acme",
        device="cpu",
        dtypes={torch.float32: "float"},
        scalars={},
        reductions={},
        render=str,
        build=list,
        externs={"aten.mm.default": Extern(run=torch.mm, refuse=raises)},
    )
    [warning] = told([loop_backend(target), "eager"])
    assert "acme could not say whether it takes aten.mm.default(" in warning


def test_pinned_backends_are_told_of_once_too() -> None:
    [warning] = told([acme(raises), "eager"], pins={"mm": "eager"})
    assert "acme could not say whether it takes 12 calls" in warning


def at_random(seed: int) -> Callable[[Call], str | None]:
    draw = random.Random(seed)
    return lambda call: draw.choice([None, "Not now."])


def after(number: int) -> Callable[[Call], str | None]:
    asked: list[Call] = []

    def supports(call: Call) -> str | None:
        asked.append(call)
        return "No more." if len(asked) > number else None

    return supports


@pytest.mark.slow
@pytest.mark.parametrize("supports", [*map(at_random, range(5)), after(1), after(7), after(13), after(25)])
def test_a_backend_that_contradicts_itself_is_left_out_of_the_graph(supports: Any) -> None:
    warned = told([acme(supports), "eager"], placement="order")
    assert len(warned) == 1 and "acme contradicts itself: it took aten." in warned[0]
    assert "The graph is compiled without acme. strict=True makes this an error." in warned[0]


@pytest.mark.parametrize(("strict", "backends"), [(True, ["eager"]), (False, [])])
def test_that_is_an_error_where_it_must_be(strict: bool, backends: list[Any]) -> None:
    alone = [] if backends else [acme(lambda call: "No.", name="rest", last_resort=True)]
    with pytest.raises(KeelError, match="acme contradicts itself") as caught:
        keel.compile(program, backends=[acme(after(13)), *backends, *alone], strict=strict)(X)
    assert caught.value.code == "refuse-raised"


@pytest.mark.slow
def test_a_contradiction_by_cost_and_after_a_part_that_failed() -> None:
    def fails(gm: Any) -> Any:
        raise ValueError("no")

    other = acme(name="other", compile=fails, cost=sheet())
    for placement in ("cost", "measured"):
        torch.compiler.reset()
        warned = told([acme(after(14), cost=sheet()), other, "eager"], placement=placement)
        assert [w for w in warned if "acme contradicts itself" in w], warned


def sheet(**seconds: Any) -> Cost:
    return Cost(
        flops={torch.float32: 1e9},
        scalars=1e9,
        bandwidth=1e9,
        seconds={f"aten.{name}": given for name, given in seconds.items()},
    )


SECONDS: dict[str, tuple[Callable[[Call], Any], str]] = {
    "raises": (lambda call: 1 / 0, "It raised ZeroDivisionError: division by zero"),
    "quits": (quits, "It raised SystemExit: 3"),
    "nan": (lambda call: float("nan"), "It returned nan"),
    "inf": (lambda call: float("inf"), "It returned inf"),
    "below zero": (lambda call: -1.0, "It returned -1"),
    "a text": (lambda call: "1 us", "It returned str"),
    "nothing": (lambda call: None, "It returned NoneType"),
    "yes": (lambda call: True, "It returned bool"),
    "beyond floats": (lambda call: 10**400, "It returned inf"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SECONDS)
@pytest.mark.parametrize("placement", ["auto", "cost"])
def test_a_data_sheet_that_fails_counts_as_none(case: str, placement: str) -> None:
    seconds, said = SECONDS[case]
    backends = [acme(cost=sheet(sin=seconds)), acme(name="other", cost=sheet()), "eager"]
    [warning] = told(backends, placement=placement)
    assert "KeelError[cost-raised]: acme could not say how long aten.sin.default(" in warning and said in warning
    assert "as if acme had no data sheet" in warning
    with pytest.raises(KeelError, match="cost-raised"):
        keel.compile(program, backends=backends, placement=placement, strict=True)(X + 1)


def test_seconds_that_differ_each_time_are_asked_for_once() -> None:
    draw = random.Random(0)
    backends = [acme(cost=sheet(sin=lambda call: draw.random() * 1e-6)), acme(name="other", cost=sheet()), "eager"]
    assert told(backends, placement="cost") == []
    assert str(keel.explain(program, X, backends=backends, placement="cost"))


@pytest.fixture
def handler() -> Iterator[Callable[..., None]]:
    def use(function: Callable[..., Any]) -> None:
        signal.signal(signal.SIGUSR1, function)

    before = signal.getsignal(signal.SIGUSR1)
    yield use
    signal.signal(signal.SIGUSR1, before)


class Timeout(Exception):
    pass


def test_what_is_the_users_is_never_swallowed(handler: Callable[..., None]) -> None:
    def interrupted(call: Call) -> None:
        raise KeyboardInterrupt

    def signaled(call: Call) -> float:
        os.kill(os.getpid(), signal.SIGUSR1)
        return 1.0

    def late(number: int, frame: Any) -> None:
        raise Timeout

    handler(late)
    with pytest.raises(KeyboardInterrupt):
        keel.compile(program, backends=[acme(interrupted), "eager"])(X)
    for backend in (acme(signaled), acme(cost=sheet(sin=signaled))):
        with pytest.raises(Timeout):
            keel.testing.refusal(backend, CALL) if backend.cost is None else sheet_of(backend)


CALL = Call(
    torch.ops.aten.sin.default,
    (keel.TensorType(torch.float32, (4,), (1,), torch.device("cpu")),),
    {},
    (keel.TensorType(torch.float32, (4,), (1,), torch.device("cpu")),),
)


def sheet_of(backend: Backend) -> None:
    from keel.placement.support_cache import SupportCache

    [own] = SupportCache([backend]).backends
    assert own.cost is not None
    own.cost.seconds["aten.sin"](CALL)  # type: ignore[operator]


def test_a_question_cannot_be_changed_for_those_who_are_asked_later() -> None:
    def meddles(call: Call) -> None:
        call.kwargs["alpha"] = 7  # type: ignore[index]

    later: list[Call] = []
    [warning] = told([acme(meddles), acme(later.append, name="next"), "eager"])
    assert "acme could not say whether it takes 13 calls" in warning and "TypeError" in warning
    assert later and not any(call.kwargs for call in later)
