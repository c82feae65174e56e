"""What a package changes in the whole process while it is imported, put back.

Settings are rows of data: the words for one, how it is read and how it is written.  What a package puts in the place of
PyTorch's own functions is not among them: that cannot be told from what it adds there rightly.
"""

from __future__ import annotations

import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any

import numpy as np
import torch


@dataclass(frozen=True)
class Contained:
    """What was put back: the words for each setting, filled in at the end."""

    notes: list[str] = field(default_factory=list)


@contextmanager
def contained() -> Iterator[Contained]:
    """Runs an import so that it changes no setting of the process; warnings are dropped, and what is printed to
    ``sys.stdout`` goes to ``sys.stderr``.
    """
    changes = Contained()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user can do nothing about a package's warnings
        before = [(setting, _read(setting)) for setting in _SETTINGS]
        try:
            with redirect_stdout(sys.stderr):
                yield changes
        finally:
            for setting, value in before:
                if value is not None and _read(setting) != value:
                    changes.notes.append(setting.words)
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


class _Paths(list[str]):
    """The paths of modules, equal to others that hold the same and more: a package may add its own."""

    def __ne__(self, other: object) -> bool:
        """Asked of the later ones: whether an earlier path is gone."""
        return not isinstance(other, list) or not set(other) <= set(self)


def _set_paths(paths: Sequence[str]) -> None:
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]


def _file_mode() -> int:
    mode = os.umask(0o077)  # nothing but setting it tells what it is
    os.umask(mode)
    return mode


_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def _open_streams() -> frozenset[str]:
    return frozenset(name for _, name, _ in _STREAMS if not _closed(getattr(sys, f"__{name}__")))


def _closed(stream: IO[str] | None) -> bool:
    return stream is None or stream.closed


def _reopen(names: Collection[str]) -> None:
    """Opens the standard streams that are closed now; their descriptors are open still."""
    for number, name, mode in _STREAMS:
        old = getattr(sys, f"__{name}__")
        if name in names and _closed(old):
            stream = open(number, mode, closefd=False, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 stays
            setattr(sys, f"__{name}__", stream)
            if getattr(sys, name) in (old, None):
                setattr(sys, name, stream)


def _logging() -> tuple[int, int, list[logging.Handler]]:
    return logging.root.manager.disable, logging.root.level, list(logging.root.handlers)


def _set_logging(value: tuple[int, int, list[logging.Handler]]) -> None:
    logging.disable(value[0])
    logging.root.setLevel(value[1])
    logging.root.handlers[:] = value[2]


def _collector() -> tuple[bool, tuple[int, ...]]:
    return gc.isenabled(), gc.get_threshold()


def _set_collector(value: tuple[bool, tuple[int, int, int]]) -> None:
    if value[0]:
        gc.enable()
    else:
        gc.disable()
    gc.set_threshold(*value[1])


def _numpy_random() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state()
    return name, tuple(keys), *rest


def _keeps_subnormals() -> bool:
    return bool((torch.full((1,), 2.0**-1022, dtype=torch.float64) / 2).item())


def _anomalies() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _set_anomalies(value: tuple[bool, bool]) -> None:
    torch.autograd.set_detect_anomaly(value[0], check_nan=value[1])


def _autocast() -> dict[str, tuple[bool, torch.dtype]]:
    return {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _kinds()}


def _set_autocast(value: Mapping[str, tuple[bool, torch.dtype]]) -> None:
    for kind, (enabled, dtype) in value.items():
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    torch.clear_autocast_cache()


def _kinds() -> tuple[str, ...]:
    accelerator = torch.accelerator.current_accelerator()
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


_SETTINGS = (
    _Setting("the current folder", os.getcwd, os.chdir),
    _Setting("signal handlers", lambda: {n: signal.getsignal(n) for n in signal.valid_signals()}, _handle),
    _Setting("environment variables", lambda: _Variables(os.environ), _set_environment),
    *(
        _Setting(f"sys.{name}", partial(getattr, sys, name), partial(setattr, sys, name))
        for name in ("stdin", "stderr", "excepthook", "unraisablehook", "displayhook")
    ),
    _Setting("threading.excepthook", lambda: threading.excepthook, lambda v: setattr(threading, "excepthook", v)),
    _Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    _Setting("the trace function", lambda: (sys.gettrace(),), lambda v: sys.settrace(v[0])),
    _Setting("the profile function", lambda: (sys.getprofile(),), lambda v: sys.setprofile(v[0])),
    _Setting("the garbage collector", _collector, _set_collector),
    _Setting("closed standard streams", _open_streams, _reopen),
    _Setting("sys.path", lambda: _Paths(sys.path), _set_paths),
    _Setting("the mode of new files", _file_mode, os.umask),
    _Setting("logging", _logging, _set_logging),
    _Setting(
        "how processes are started",
        lambda: (multiprocessing.get_start_method(allow_none=True),),
        lambda v: multiprocessing.set_start_method(v[0], force=True),
    ),
    _Setting("the locale", lambda: locale.setlocale(locale.LC_ALL), lambda v: locale.setlocale(locale.LC_ALL, v)),
    _Setting("Python's random numbers", random.getstate, random.setstate),
    _Setting("NumPy's random numbers", _numpy_random, np.random.set_state),
    _Setting("NumPy's errors", np.geterr, lambda v: np.seterr(**v)),
    _Setting(
        "PyTorch's random numbers",
        lambda: torch.get_rng_state().numpy().tobytes(),
        lambda v: torch.set_rng_state(torch.frombuffer(bytearray(v), dtype=torch.uint8)),
    ),
    _Setting("PyTorch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    _Setting(
        "PyTorch's default device",
        torch.get_default_device,
        lambda v: torch.set_default_device(None if v == torch.device("cpu") else v),
    ),  # a default costs each call
    _Setting("PyTorch's gradient mode", torch.is_grad_enabled, torch.set_grad_enabled),
    _Setting("PyTorch's autocast", _autocast, _set_autocast),
    _Setting("PyTorch's detection of anomalies", _anomalies, _set_anomalies),
    _Setting("PyTorch's subnormal numbers", _keeps_subnormals, lambda v: torch.set_flush_denormal(not v)),
    _Setting("PyTorch's threads", torch.get_num_threads, torch.set_num_threads),
    _Setting(
        "PyTorch's deterministic algorithms",
        _deterministic,
        lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1]),
    ),
    _Setting("PyTorch's precision of products", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
)
