"""Launches of C++ kernels from C: what a function gets, what stays in Python, several threads, errors."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any

import pytest
import sympy
import torch

from keel import KeelError, Launcher, Source
from keel.launcher import c_library
from keel.launcher.native import launcher_type
from keel.loops import Buffer, Kernel
from keel.types import as_dim, symbol
from keel_cpp import native_launch, target
from keel_cpp.native_launch import MOST, failed, native

from .kernels import kernel

pytestmark = pytest.mark.skipif(launcher_type() is None, reason="This machine cannot build launchers in C.")


def noting(count: int) -> ctypes.CDLL:
    """A library with a function that notes its parameters: two addresses, then ints."""
    params = ["const float *p0", "short *p1", *(f"int64_t p{n}" for n in range(2, count))][:count]
    noted = " ".join(f"seen[{n}] = (int64_t)p{n};" for n in range(count))
    text = f"#include <stdint.h>\nint64_t seen[{count}];\nvoid note({', '.join(params)}) {{ {noted} }}\n"
    library = c_library(text, what="a test")
    assert library is not None
    return library


def of_parameters(buffers: int, symbols: int) -> Kernel:
    """A kernel that does nothing with these numbers of parameters. It needs a buffer to have symbols."""
    size = as_dim(sum((symbol(f"s{n}") for n in range(symbols)), start=sympy.Integer(1)))
    return Kernel("nothing", tuple(Buffer(f"x{n}", torch.float32, size, "in") for n in range(buffers)), ())


@pytest.mark.parametrize("count", [1, 2, 3, 7, 33, MOST])
def test_a_function_gets_its_parameters_in_order(count: int) -> None:
    left: list[Any] = []
    tensors = [torch.empty(1) for _ in range(min(count, 2))]
    numbers = [(-1) ** n * (2**62 + n) for n in range(count - len(tensors))]
    library = noting(count)
    k = of_parameters(len(tensors), len(numbers))
    native(lambda *args: left.append(args), library, "note", k)(*tensors, *numbers)
    seen = (ctypes.c_int64 * count).in_dll(library, "seen")
    assert [*seen] == [*(t.data_ptr() for t in tensors), *numbers] and left == []


@pytest.mark.parametrize(("buffers", "symbols"), [(0, 0), (MOST + 1, 0), (1, MOST)])
def test_kernels_that_python_launches(buffers: int, symbols: int) -> None:
    def otherwise(*args: Any) -> None:
        """Does nothing."""

    assert native(otherwise, noting(1), "note", of_parameters(buffers, symbols)) is otherwise


def launcher(name: str, **sizes: int | None) -> Launcher:
    k = kernel(name, **sizes)
    (made,) = target.build([Source(k, target.render(k))])
    return made


def test_a_machine_without_a_c_compiler_launches_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_launch, "entries", lambda: None)
    launch, x = launcher("in_place", N=3, M=4), torch.arange(12.0)
    assert isinstance(launch, FunctionType)
    launch(x, torch.empty(1))
    assert torch.equal(x, torch.arange(12.0) ** 2)


def test_kernels_are_launched_from_c() -> None:
    assert type(launcher("in_place", N=3, M=4)) is launcher_type()


def test_sizes_are_passed() -> None:
    launch, x, out = launcher("softmax", N=None, M=None), torch.randn(5, 7), torch.empty(5, 7)
    launch(x, out, 7, 5)  # symbols are sorted
    torch.testing.assert_close(out, x.softmax(1))


def test_threads_launch_at_a_time() -> None:
    launch = launcher("softmax", N=None, M=None)

    def run(number: int) -> bool:
        x, out = torch.randn(4, 9 + number), torch.empty(4, 9 + number)
        for _ in range(200):
            launch(x, out.zero_(), 9 + number, 4)
            if not torch.allclose(out, x.softmax(1)):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(16)))


def test_an_error_would_be_raised() -> None:
    with pytest.raises(KeelError, match="The entry of a C\\+\\+ kernel returned 3"):
        failed(3)
