"""Which device is used, and what it says without one."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import keel
from keel import KeelError
from keel_opencl import backend, opencl_devices
from keel_opencl.op_table import tables
from keel_opencl.opencl_devices import Abilities

WHY_NOT = opencl_devices.probe()
needs_device = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


def test_a_machine_without_pyopencl_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_devices, "find_spec", lambda name: None)
    assert opencl_devices.available() == []
    assert str(opencl_devices.probe()).startswith("It needs PyOpenCL: pip install 'torch-keel[opencl]'")


def test_a_machine_without_a_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_devices, "find_spec", lambda name: True)
    monkeypatch.setattr(opencl_devices, "available", list)
    assert str(opencl_devices.probe()).startswith("It finds no OpenCL device: pip install")


def test_a_device_that_divides_inexactly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_devices, "find_spec", lambda name: True)
    monkeypatch.setattr(opencl_devices, "device", lambda: SimpleNamespace(name="fast"))
    monkeypatch.setattr(opencl_devices, "abilities", lambda found: Abilities(rounds=False))
    assert opencl_devices.probe() == "fast does not divide float32 as IEEE arithmetic does."


def test_a_driver_that_cannot_compile_for_its_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Program:
        def __init__(self, context: Any, text: str) -> None:
            pass

        def build(self, cache_dir: bool) -> None:
            raise ValueError("clBuildProgram failed\n\nerror: unknown target CPU 'generic'\nDevice failed")

    class Device:
        name, platform = "new", SimpleNamespace(version="OpenCL 3.0")

    library = SimpleNamespace(Program=Program, Context=list, Error=ValueError)
    monkeypatch.setitem(sys.modules, "pyopencl", library)
    monkeypatch.setattr(opencl_devices, "find_spec", lambda name: True)
    monkeypatch.setattr(opencl_devices, "device", Device)
    monkeypatch.setattr(opencl_devices, "abilities", lambda of: Abilities())
    refusal = "The driver OpenCL 3.0 cannot compile for new: error: unknown target CPU 'generic'."
    assert opencl_devices.probe() == refusal


def test_tables_have_what_the_device_has() -> None:
    plain, full = tables(Abilities()), tables(Abilities(doubles=True, long_atomics=True))
    assert torch.float64 not in plain.dtypes and "pow" not in plain.scalars
    assert torch.float64 in full.dtypes and "pow" in full.scalars
    assert torch.int64 in full.atomics - plain.atomics and torch.float64 in full.atomics
    assert torch.float64 not in tables(Abilities(long_atomics=True)).atomics


@needs_device
def test_devices_are_found_by_words_of_their_names() -> None:
    (owner, found), *_ = opencl_devices.available()
    assert (
        opencl_devices.device(owner[:4], found.name[-4:]) == found and opencl_devices.device("no such platform") is None
    )


@needs_device
@pytest.mark.slow
def test_an_option_that_names_no_device_is_an_error() -> None:
    options: dict[str, Any] = {"opencl.platform": "no such platform"}
    compiled = keel.compile(torch.exp, backends=[backend], options=options, strict=True)
    with pytest.raises(KeelError, match="No OpenCL device has 'no such platform'"):
        compiled(torch.ones(3))


@needs_device
def test_memory_comes_back_as_it_was_put() -> None:
    here, x = opencl_devices.machine(), torch.arange(100, dtype=torch.uint8)
    assert torch.equal(here.get(here.put(x))[:100], x)
    assert len(here.get(here.allocate(0))) >= 0 and len(here.get(here.allocate(5))) == 5


@needs_device
def test_memory_of_a_device_with_its_own_is_copied() -> None:
    here = opencl_devices.machine()
    apart = opencl_devices.Machine(SimpleNamespace(host_unified_memory=False), here.context, here.queue)
    x = torch.arange(100, dtype=torch.uint8)
    block = apart.put(x)
    x.zero_()
    assert torch.equal(apart.get(block), torch.arange(100, dtype=torch.uint8))
