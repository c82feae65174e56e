"""What a package changes in the whole process while it is imported, put back.

Settings are rows of data: the words for one, how it is read and how it is written.  What a package puts in the place of
PyTorch's own functions is not among them: that cannot be told from what it adds there rightly.
"""
from __future__ import annotations

import gc
import locale
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Contained:
    """What was put back: the words for each setting, filled in at the end."""

    notes: list[str] = field(default_factory=list)


@contextmanager
def contained() -> Iterator[Contained]:
    """Runs an import so that it changes no setting of the process; warnings are dropped, and what is printed to
    ``sys.stdout`` goes to ``sys.stderr``."""
    found = Contained()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                       # the user can do nothing about a package's warnings
        before = [(setting, _read(setting)) for setting in _SETTINGS]
        try:
            with redirect_stdout(sys.stderr):
                yield found
        finally:
            for setting, value in before:
                if value is not None and _read(setting) != value:
                    found.notes.append(setting.words)
                    with suppress(Exception):
                        setting.write(value)


@dataclass(frozen=True)
class _Setting:
    words: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _read(setting: _Setting) -> Any:
    """None where it cannot be read here, in another thread than the main one, say."""
    try:
        return setting.read()
    except Exception:
        return None


def _handle(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.update(variables)


class _Variables(dict[str, str]):
    """Environment variables, equal to others that hold the same and more: a package may add its own."""

    def __ne__(self, other: object) -> bool:
        """Asked of the later ones: whether an earlier variable is changed or gone."""
        return not isinstance(other, dict) or any(self.get(name) != value for name, value in other.items())


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


_SETTINGS = (
    _Setting("the current folder", os.getcwd, os.chdir),
    _Setting("signal handlers", lambda: {n: signal.getsignal(n) for n in signal.valid_signals()}, _handle),
    _Setting("environment variables", lambda: _Variables(os.environ), _set_environment),
    *(_Setting(f"sys.{name}", partial(getattr, sys, name), partial(setattr, sys, name))
      for name in ("stdin", "stderr", "excepthook", "unraisablehook", "displayhook")),
    _Setting("threading.excepthook", lambda: threading.excepthook, lambda v: setattr(threading, "excepthook", v)),
    _Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    _Setting("the trace function", lambda: (sys.gettrace(),), lambda v: sys.settrace(v[0])),
    _Setting("the profile function", lambda: (sys.getprofile(),), lambda v: sys.setprofile(v[0])),
    _Setting("the garbage collector", gc.isenabled, lambda v: gc.enable() if v else gc.disable()),
    _Setting("the locale", lambda: locale.setlocale(locale.LC_ALL), lambda v: locale.setlocale(locale.LC_ALL, v)),
    _Setting("Python's random numbers", random.getstate, random.setstate),
    _Setting("NumPy's errors", np.geterr, lambda v: np.seterr(**v)),
    _Setting("PyTorch's random numbers", lambda: torch.get_rng_state().numpy().tobytes(),
             lambda v: torch.set_rng_state(torch.frombuffer(bytearray(v), dtype=torch.uint8))),
    _Setting("PyTorch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    _Setting("PyTorch's default device", torch.get_default_device,
             lambda v: torch.set_default_device(None if v == torch.device("cpu") else v)),   # a default costs each call
    _Setting("PyTorch's gradient mode", torch.is_grad_enabled, torch.set_grad_enabled),
    _Setting("PyTorch's threads", torch.get_num_threads, torch.set_num_threads),
    _Setting("PyTorch's deterministic algorithms", _deterministic,
             lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1])),
    _Setting("PyTorch's precision of products", torch.get_float32_matmul_precision,
             torch.set_float32_matmul_precision),
)
