"""Parts of backends that compile in two stages: beside each other, in one order, and with the errors of that order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from keel import Backend, KeelError, KeelWarning, Staged
from keel.graph.calls import call_of
from keel.runtime import parallel_compile

from ..line import takes, whole
from .test_compile_parts import compiled


def made(x: torch.Tensor) -> tuple[torch.Tensor]:
    """Three parts of two backends."""
    return ((x @ x).relu() @ x,)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_compile, "_cores", lambda: 2)


def staged(name: str, *ops: str, finish: Callable[[fx.GraphModule], Any], begun: list[str] | None = None) -> Backend:
    def begin(gm: fx.GraphModule) -> Callable[[], Any]:
        assert threading.current_thread() is threading.main_thread()
        if begun is not None:
            begun.append(",".join(n.name for n in gm.graph.nodes if call_of(n)))
        return lambda: finish(gm)

    return takes(*ops, name=name, compile=Staged(begin))


def test_parts_are_begun_in_order_and_finished_beside_each_other() -> None:
    met, begun = threading.Barrier(2, timeout=30), list[str]()

    def finish(gm: fx.GraphModule) -> Any:
        met.wait()  # which the first could not leave before the second came
        return gm.forward

    plan, parts = compiled([staged("half", "mm", finish=finish, begun=begun), whole("rest")], made)
    assert begun == ["mm", "mm_1"] and [p.owner.name for p in plan.parts] == ["half", "rest", "half"]
    assert [p.owner for p in parts] == ["half", "rest", "half"]


def test_of_several_errors_the_first_part_s_counts_whichever_came_first() -> None:
    second = threading.Event()

    def finish(gm: fx.GraphModule) -> Any:
        if any(n.name == "mm_1" for n in gm.graph.nodes):
            second.set()
            raise ValueError("the second")
        second.wait(30)
        raise ValueError("the first")

    with pytest.raises(KeelError, match=r"could not compile part p0 .*\n.*the first"):
        compiled([staged("half", "mm", finish=finish), takes("relu", name="rest")], made, strict=True)


def test_what_was_compiled_beside_a_failure_is_kept() -> None:
    compiled_parts = []

    def finish(gm: fx.GraphModule) -> Any:
        name = next(n.name for n in gm.graph.nodes if call_of(n))
        compiled_parts.append(name)
        if name == "mm":
            raise ValueError("no")
        return gm.forward

    with pytest.warns(KeelWarning, match="half could not compile part p0 of 1 call"):
        plan, _ = compiled([staged("half", "mm", finish=finish), whole("rest")], made)
    assert sorted(compiled_parts) == ["mm", "mm_1"]
    assert [(p.owner.name, p.nodes) for p in plan.parts] == [("rest", ("mm", "relu")), ("half", ("mm_1",))]


def test_what_raises_at_once_is_as_good_as_what_raises_later() -> None:
    def begin(gm: fx.GraphModule) -> Any:
        raise ValueError("at once")

    with pytest.warns(KeelWarning) as warned:
        plan, _ = compiled([takes("mm", name="half", compile=Staged(begin)), whole("rest")], made)
    assert [str(w.message).splitlines()[0] for w in warned] == [
        "KeelError[compile-raised]: half could not compile 2 parts of 2 calls, which it had claimed; the first was p0."
    ]
    assert [p.owner.name for p in plan.parts] == ["rest"]


def test_a_single_part_is_finished_on_the_thread_that_compiles() -> None:
    def finish(gm: fx.GraphModule) -> Any:
        assert threading.current_thread() is threading.main_thread()
        return gm.forward

    compiled([staged("half", "relu", finish=finish), whole("rest")], made)


def test_an_exit_on_a_thread_costs_the_part_alone() -> None:
    def finish(gm: fx.GraphModule) -> Any:
        raise SystemExit(7)

    with pytest.warns(KeelWarning, match="SystemExit: 7"):
        plan, _ = compiled([staged("half", "mm", finish=finish), whole("rest")], made)
    assert [p.owner.name for p in plan.parts] == ["rest"]


def test_an_interrupt_does_not_wait_for_a_thread_that_hangs() -> None:
    free = threading.Event()

    def finish(gm: fx.GraphModule) -> Any:
        free.wait(60)
        return gm.forward

    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            compiled([staged("half", "mm", finish=finish), takes("relu", name="rest")], made)
        assert time.monotonic() - started < 20
    finally:
        free.set()


def test_nothing_that_can_be_called_is_a_failure_too() -> None:
    with pytest.raises(KeelError, match="TypeError: `compile` returned int, not a callable"):
        compiled([staged("half", "mm", finish=lambda gm: 3), takes("relu", name="rest")], made)


@pytest.mark.slow
def test_an_interrupt_leaves_no_compiler_behind(tmp_path: Path) -> None:
    """Two parts are compiled beside each other by a compiler that hangs, and the process gets SIGINT."""
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\ncase $1 in -print*) exit 1;; esac\necho $$ >> {tmp_path}/runs\nexec sleep 1000\n")
    compiler.chmod(0o755)
    text = (
        "import torch, keel\n"
        "from keel.runtime import parallel_compile\n"
        "parallel_compile._cores = lambda: 2\n"
        "def f(x): return ((x.exp() + 1) @ x).exp() + 1\n"
        "keel.compile(f, backends=['cpp', 'eager'], pins={'aten.mm': 'eager'})(torch.ones(4, 4))\n"
    )
    runs = tmp_path / "runs"
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "KEEL_CACHE_DIR": str(tmp_path / "cache"),
    }
    child = subprocess.Popen([sys.executable, "-c", text], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        ends = time.monotonic() + 300
        while not runs.exists() or runs.read_text().count("\n") < 2:
            assert child.poll() is None and time.monotonic() < ends
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.communicate(timeout=120)[1]
        ends = time.monotonic() + 60
        while any(runs_still(int(process)) for process in runs.read_text().split()):
            assert time.monotonic() < ends
            time.sleep(0.05)
    finally:
        child.kill()
        child.communicate()


def runs_still(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except OSError:
        return False
