"""Launchers in C call their entry with addresses, ints, the device and its queue, and leave to Python what it does."""

from __future__ import annotations

import ctypes
import gc
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from keel.launcher import c_library, native
from keel.launcher.native import MOST, launcher_type, native_launcher

pytestmark = pytest.mark.skipif(launcher_type() is None, reason="This machine cannot build launchers in C.")

ENTRY = """
#include <stdint.h>
struct state { int code; uint64_t arguments[4]; int64_t device; uint64_t queue; };
int entry(void *state, uint64_t *arguments, int64_t device, uint64_t queue)
{
    struct state *s = state;
    for (int i = 0; i < 4; i++)
        s->arguments[i] = arguments[i];
    s->device = device;
    s->queue = queue;
    return s->code;
}
"""


class State(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int),
        ("arguments", ctypes.c_int64 * 4),
        ("device", ctypes.c_int64),
        ("queue", ctypes.c_uint64),
    )


@dataclass(eq=False)
class Trial:
    """An entry that notes its arguments and returns ``state.code``; and the calls that Python got instead."""

    state: State = field(default_factory=State)
    left: list[Any] = field(default_factory=list)

    def launcher(self, queue: Callable[[int], int] | None = None, buffers: int = 3, symbols: int = 1) -> Any:
        library = c_library(ENTRY, what="a test")
        assert library is not None
        address = ctypes.cast(library.entry, ctypes.c_void_p).value or 0
        return native_launcher(
            self.otherwise,
            address,
            ctypes.addressof(self.state),
            buffers=buffers,
            symbols=symbols,
            failed=self.failed,
            owner=(self, library),
            queue=queue,
        )

    def otherwise(self, *args: Any) -> None:
        self.left.append(args)

    def failed(self, code: int) -> None:
        raise ArithmeticError(f"error {code}")


X, Y, Z = (torch.zeros(4) for _ in range(3))


def test_an_entry_gets_addresses_and_ints() -> None:
    trial = Trial()
    trial.launcher()(X, Y, Z, -7)
    assert [*trial.state.arguments] == [X.data_ptr(), Y.data_ptr(), Z.data_ptr(), -7]
    assert (trial.state.device, trial.state.queue, trial.left) == (-1, 0, [])


def test_an_entry_gets_the_queue_of_the_first_tensor() -> None:
    trial, asked = Trial(), []

    def queue(device: int) -> int:
        asked.append(device)
        return 2**64 - 1

    trial.launcher(queue)(X, Y, Z, 2**63 - 1)
    assert asked == [X.get_device()]
    assert (trial.state.device, trial.state.queue) == (X.get_device(), 2**64 - 1)


def test_what_an_entry_does_not_launch_is_left_to_python() -> None:
    trial = Trial()
    trial.state.code = -1
    trial.launcher()(X, Y, Z, 5)
    assert trial.left == [(X, Y, Z, 5)]


def test_another_number_of_arguments_is_left_to_python() -> None:
    trial = Trial()
    trial.launcher()(X, Y)
    assert trial.left == [(X, Y)]


def test_an_error_of_an_entry_is_raised() -> None:
    trial = Trial()
    trial.state.code = 3
    with pytest.raises(ArithmeticError, match="error 3"):
        trial.launcher()(X, Y, Z, 5)


def broken_queue(device: int) -> int:
    raise LookupError("no queue")


@pytest.mark.parametrize(
    ("args", "error", "queue"),
    [
        ((X, None, Z, 5), AttributeError, None),
        ((X, Y, Z, "5"), TypeError, None),
        ((X, Y, Z, 2**63), OverflowError, None),
        ((X, Y, Z, 5), LookupError, broken_queue),
        ((X, Y, Z, 5), TypeError, str),
    ],
)
def test_arguments_that_are_not_what_they_should_be(args: Any, error: type[Exception], queue: Any) -> None:
    with pytest.raises(error):
        Trial().launcher(queue)(*args)


@pytest.mark.parametrize(("buffers", "symbols"), [(0, 1), (1, MOST)])
def test_launchers_that_python_keeps(buffers: int, symbols: int) -> None:
    trial = Trial()
    assert trial.launcher(buffers=buffers, symbols=symbols) == trial.otherwise


def test_a_launcher_keeps_its_owner_and_cycles_are_collected() -> None:
    trial = Trial()
    trial.left.append(trial.launcher())
    seen = weakref.ref(trial)
    launch = trial.left[0]
    del trial
    gc.collect()
    assert seen() is not None
    launch(X, Y, Z, 1)
    del launch
    gc.collect()
    assert seen() is None


def test_without_headers_or_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.sysconfig, "get_paths", lambda: {"include": "/nowhere"})
    assert launcher_type.__wrapped__() is None
    monkeypatch.undo()
    monkeypatch.setattr(native, "COMPILERS", ("no-such-compiler",))
    assert launcher_type.__wrapped__() is None


def test_text_that_does_not_compile_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    log = logging.getLogger(native.__name__)
    monkeypatch.setattr(log, "info", lambda message, *args: messages.append(message % args))
    assert c_library("int x = ;", what="a test") is None
    assert "Kernels are launched by Python" in messages[0]
