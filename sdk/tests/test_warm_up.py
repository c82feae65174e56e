"""Backends prepare what they need for every graph while the first one is captured."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, get_ident
from typing import Any

import torch
from torch import fx

import keel
from keel import Backend, LoopTarget
from keel.warm_up import warm_up


def forward(gm: fx.GraphModule) -> Any:
    return gm.forward


def backend(prepare: Callable[[], Any] | None, compile: Callable[[fx.GraphModule], Any] = forward) -> Backend:
    return Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile, warm_up=prepare)


def test_it_runs_during_the_capture_of_the_first_graph() -> None:
    threads: list[int] = []
    ran = Event()

    def prepare() -> None:
        threads.append(get_ident())
        ran.set()

    def compile(gm: fx.GraphModule) -> Any:
        assert ran.wait(10), "It had to run before the first graph was compiled."
        return gm.forward

    acme = backend(prepare, compile)
    for size in (3, 4):
        run = keel.compile(lambda x: x.cos() * 2, backends=[acme], dynamic=False)
        x = torch.ones(size)
        torch.testing.assert_close(run(x), x.cos() * 2)
    assert len(threads) == 1 and threads[0] != get_ident()


def test_nothing_waits_for_it() -> None:
    release = Event()
    run = keel.compile(lambda x: x.sin() + 1, backends=[backend(lambda: release.wait(10))])
    torch.testing.assert_close(run(torch.zeros(2)), torch.ones(2))
    assert not release.is_set()
    release.set()


def test_what_it_raises_is_logged() -> None:
    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            logged.set()

    def prepare() -> None:
        raise OSError("no compiler")

    lines: list[str] = []
    logged, listener, log = Event(), Listener(), logging.getLogger("keel.warm_up")
    before = log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    try:
        warm_up([backend(None), backend(prepare)])
        assert logged.wait(10)
    finally:
        log.setLevel(before)
        log.removeHandler(listener)
    assert lines == ["acme could not warm up: OSError: no compiler"]


def test_a_loop_target_hands_it_on() -> None:
    def prepare() -> None: ...

    lab = LoopTarget(
        name="lab",
        device="cpu",
        dtypes={torch.float32: "float"},
        scalars={"mul": "mul"},
        reductions={},
        render=str,
        build=lambda sources: [],
        warm_up=prepare,
    )
    assert keel.loop_backend(lab).warm_up is prepare
