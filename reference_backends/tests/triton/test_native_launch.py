"""What launch.c hands to the CUDA driver, seen by functions that stand for the driver's."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from keel import KeelError
from keel.launcher import c_library
from keel_triton import native_launch
from keel_triton.driver import INVALID_CONTEXT, Run
from keel_triton.native_launch import MOST, VARIANTS, Variants

pytestmark = pytest.mark.skipif(
    c_library("int keel_nothing;", what="a test") is None, reason="This machine has no C compiler."
)


class Driver:
    """Notes launches: the function, the grid, the block, shared memory, the stream, and parameters of 64 bits."""

    def __init__(self) -> None:
        self.launches: list[Any] = []
        self.counts = {10: 5, 11: 1}  # the parameters of each function
        self.codes: list[int] = []
        self.device = 0
        unsigned = [ctypes.c_uint] * 7
        number = ctypes.c_uint64
        places = ctypes.POINTER(ctypes.POINTER(number))
        kind = ctypes.CFUNCTYPE(ctypes.c_int, number, *unsigned, number, places, ctypes.c_void_p)
        self.cuLaunchKernel = kind(self.launch)
        self.cuCtxGetDevice = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(self.current)

    def launch(self, function: int, *rest: Any) -> int:
        places = rest[8]
        given = [places[k][0] for k in range(self.counts[function])]
        self.launches.append((function, rest[:8], given))
        return self.codes.pop(0) if self.codes else 0

    def current(self, device: Any) -> int:
        device[0] = self.device
        return 0


def run(function: int, parameters: int, *numbers: int) -> Run:
    return Run(function, 7, 128, 1024, numbers, parameters, lambda addresses, stream: None)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(native_launch, "stream_handle", lambda device: 99)
    return Driver()


class OnDevice(torch.Tensor):
    """A tensor of the CPU that says it is on device 0."""

    def get_device(self) -> int:
        return 0


def tensor(length: int = 4, offset: int = 0) -> torch.Tensor:
    return torch.zeros(length + offset, dtype=torch.float32)[offset:].as_subclass(OnDevice)


def launched(variants: Variants, *args: Any) -> list[Any]:
    """What the launcher leaves to Python."""
    left: list[Any] = []
    variants.launcher(lambda *given: left.append(given))(*args)
    return left


def test_all_launches_of_a_kernel(driver: Driver) -> None:
    variants, x, y = Variants(2, 0, driver), tensor(), tensor()
    variants.add(0, True, (), [((1, 0), run(10, 5, 6, -1)), ((1,), run(11, 1))])
    gc.collect()
    assert launched(variants, x, y) == []
    shape = (7, 1, 1, 128, 1, 1, 1024, 99)
    assert driver.launches == [
        (10, shape, [y.data_ptr(), x.data_ptr(), 6, 2**64 - 1, 0]),
        (11, shape, [y.data_ptr()]),
    ]


def test_a_kernel_without_programs_launches_nothing(driver: Driver) -> None:
    variants = Variants(1, 0, driver)
    variants.add(0, True, (), [])
    assert launched(variants, tensor()) == driver.launches == []


def test_what_is_not_listed_is_left_to_python(driver: Driver) -> None:
    variants, x = Variants(1, 1, driver), tensor()
    variants.add(0, True, (5,), [((0,), run(11, 1))])
    variants.add(0, True, (-6,), [((0,), run(11, 1))])
    assert launched(variants, x, 5) == launched(variants, x, -6) == []
    assert len(driver.launches) == 2
    unaligned = tensor(offset=1)
    assert launched(variants, x, 6) == [(x, 6)]
    assert launched(variants, unaligned, 5) == [(unaligned, 5)]
    driver.device = 1
    assert launched(variants, x, 5) == [(x, 5)]
    assert len(driver.launches) == 2


def test_variants_by_alignment(driver: Driver) -> None:
    variants = Variants(1, 0, driver)
    variants.add(0, True, (), [((0,), run(11, 1))])
    variants.add(0, False, (), [((0,), run(10, 5))])
    assert launched(variants, tensor()) == launched(variants, tensor(offset=1)) == []
    assert [launch[0] for launch in driver.launches] == [11, 10]


def test_a_thread_without_a_context_is_left_to_python(driver: Driver) -> None:
    variants, x = Variants(1, 0, driver), tensor()
    variants.add(0, True, (), [((0,), run(11, 1))])
    driver.codes = [INVALID_CONTEXT]
    assert launched(variants, x) == [(x,)]


@pytest.mark.parametrize("codes", [[700], [0, INVALID_CONTEXT]])
def test_errors_have_the_drivers_number(driver: Driver, codes: list[int]) -> None:
    variants = Variants(1, 0, driver)
    variants.add(0, True, (), [((0,), run(11, 1))] * 2)
    driver.codes = [*codes]
    with pytest.raises(KeelError, match=f"build-failed.*cuLaunchKernel failed with error {codes[-1]}"):
        launched(variants, tensor())


def test_a_list_has_an_end(driver: Driver) -> None:
    variants, x = Variants(1, 1, driver), tensor()
    for size in range(VARIANTS + 1):
        variants.add(0, True, (size,), [((0,), run(11, 1))])
    assert launched(variants, x, 0) == launched(variants, x, VARIANTS - 1) == []
    assert launched(variants, x, VARIANTS) == [(x, VARIANTS)]


def test_functions_of_many_parameters_are_left_to_python(driver: Driver) -> None:
    variants, x = Variants(1, 0, driver), tensor()
    variants.add(0, True, (), [((0,), run(11, MOST + 1))])
    assert launched(variants, x) == [(x,)]


def test_python_launches_where_there_is_no_compiler(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_launch, "launch_library", lambda: None)

    def launch(*args: Any) -> None: ...

    assert Variants(1, 0, driver).launcher(launch) is launch


def test_a_launcher_keeps_what_it_reads(driver: Driver) -> None:
    variants, x = Variants(1, 0, driver), tensor()
    variants.add(0, True, (), [((0,), run(11, 1))])
    launch = variants.launcher(lambda *given: None)
    del variants
    gc.collect()
    junk = [SimpleNamespace(k=k) for k in range(10_000)]
    launch(x)
    assert driver.launches[0][2] == [x.data_ptr()]
    assert len(junk) == 10_000
