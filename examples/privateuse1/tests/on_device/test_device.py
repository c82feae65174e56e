"""The device itself: memory, copies, streams and events, random numbers, autocast, and operators that fall back."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

import pytest
import torch

from keel_privateuse1 import NAME, Counters

FIRST, SECOND = torch.device(NAME, 0), torch.device(NAME, 1)


def counted() -> Counters:
    counters: Counters = torch.example.counters()  # type: ignore[attr-defined]
    return counters


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.example.reset_counters()  # type: ignore[attr-defined]
    torch.example.set_device(0)  # type: ignore[attr-defined]


def test_an_access_by_the_host_is_a_fault() -> None:
    address = torch.ones(4, device=NAME).data_ptr()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        ctypes.string_at(address, 1)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV


def test_copies_are_counted_by_direction() -> None:
    x = torch.randn(3, 4)
    here = x.to(NAME)
    assert counted().to_device == 1 and counted().synchronizations == 1
    there = here.clone()
    assert counted().on_device == 1
    assert torch.equal(there.cpu(), x) and counted().to_host == 1 and counted().synchronizations == 2


def test_views_and_gaps_are_copied_as_they_lie() -> None:
    x = torch.randn(6, 8)
    y = torch.zeros(8, 6, device=NAME)
    y.t()[1::2].copy_(x[::2])
    want = torch.zeros(8, 6)
    want.t()[1::2].copy_(x[::2])
    assert torch.equal(y.cpu(), want)


def test_lazy_bits_are_kept() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    here = x.to(NAME)
    assert here.conj().cpu().equal(x.conj()) and here.conj().imag.cpu().equal(x.conj().imag)
    assert here.conj().clone().cpu().equal(x.conj()) and x.conj().to(NAME).cpu().equal(x.conj())


def test_reading_a_value_is_a_synchronization() -> None:
    assert torch.full((), 3.0, device=NAME).item() == 3.0
    assert counted().synchronizations == 1 and counted().to_host == 1


def test_a_copy_that_does_not_block_arrives_when_the_host_waits() -> None:
    x, host = torch.randn(5, device=NAME), torch.zeros(5).pin_memory()
    assert host.is_pinned()
    torch.example.reset_counters()  # type: ignore[attr-defined]
    host.copy_(x, non_blocking=True)
    assert not host.any() and counted().synchronizations == 0
    event = torch.Event(NAME)
    event.record()
    x.zero_()
    later = torch.zeros(5).pin_memory()
    later.copy_(x + 1, non_blocking=True)
    event.synchronize()
    assert host.all() and not later.any() and counted().synchronizations == 1
    torch.accelerator.synchronize()
    assert later.equal(torch.ones(5))


def test_a_copy_to_pageable_memory_blocks() -> None:
    x, host = torch.randn(5, device=NAME), torch.zeros(5)
    host.copy_(x, non_blocking=True)
    assert host.equal(x.cpu())


def test_a_copy_back_waits_for_the_copy_before_it() -> None:
    x, host = torch.randn(5, device=NAME), torch.zeros(5).pin_memory()
    host.copy_(x, non_blocking=True)
    assert torch.equal(host.to(NAME, non_blocking=True).cpu(), x.cpu())


def test_streams_and_events() -> None:
    stream = torch.Stream(NAME)
    assert stream != torch.accelerator.current_stream()
    with stream:
        assert torch.accelerator.current_stream() == stream
        start, end = torch.Event(NAME, enable_timing=True), torch.Event(NAME, enable_timing=True)
        start.record()
        end.record()
    assert torch.accelerator.current_stream() != stream
    stream.wait_event(end)
    assert end.query() and start.elapsed_time(end) >= 0


def test_two_devices() -> None:
    assert torch.accelerator.device_count() == 2 and torch.accelerator.current_accelerator().type == NAME
    x = torch.arange(4.0, device=SECOND)
    assert (x + 1).device == SECOND and x.to(FIRST).device == FIRST
    torch.accelerator.set_device_index(1)
    assert torch.zeros(2, device=NAME).device == SECOND
    with pytest.raises(RuntimeError, match="there is no device 2"):
        torch.accelerator.set_device_index(2)


def test_memory_is_counted_for_each_device() -> None:
    torch.accelerator.reset_peak_memory_stats(1)
    before = torch.accelerator.memory_allocated(1)
    x = torch.zeros(1 << 20, device=SECOND)
    assert torch.accelerator.memory_allocated(1) - before == x.nbytes
    del x
    assert torch.accelerator.memory_allocated(1) == before
    assert torch.accelerator.max_memory_allocated(1) >= before + (4 << 20)


def test_storages_grow() -> None:
    x = torch.arange(3.0, device=SECOND)
    x.resize_(100)
    assert x[:3].cpu().equal(torch.arange(3.0)) and x.device == SECOND


def test_random_numbers_are_those_of_the_host_s_generator() -> None:
    torch.manual_seed(5)
    want = torch.randn(7), torch.rand(3), torch.randperm(9)
    torch.manual_seed(5)
    got = torch.randn(7, device=NAME), torch.rand(3, device=NAME), torch.randperm(9, device=NAME)
    assert all(g.cpu().equal(w) for g, w in zip(got, want, strict=True)) and not counted().fallbacks


def test_each_device_has_a_state() -> None:
    torch.manual_seed(5)
    state = torch.example.get_rng_state(1)  # type: ignore[attr-defined]
    first = torch.rand(4, device=SECOND)
    assert torch.rand(4, device=FIRST).cpu().equal(first.cpu())
    torch.example.set_rng_state(state, 1)  # type: ignore[attr-defined]
    assert torch.rand(4, device=SECOND).cpu().equal(first.cpu())
    with torch.random.fork_rng([1], device_type=NAME):
        torch.rand(4, device=SECOND)
    own = torch.Generator(NAME).manual_seed(5)
    assert torch.rand(4, device=NAME, generator=own).cpu().equal(first.cpu())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    x, w = torch.randn(4, 4, device=NAME), torch.randn(4, 4, device=NAME)
    with torch.autocast(NAME, dtype):
        y = x @ w
        assert y.dtype == dtype and y.softmax(-1).dtype == torch.float32
    with torch.autocast(NAME, dtype), torch.autocast(NAME, enabled=False):
        assert (x @ w).dtype == torch.float32


def test_operators_that_fall_back_are_counted_by_name() -> None:
    x = torch.randn(3, 3)
    torch.testing.assert_close(torch.linalg.inv(x.to(NAME)).cpu(), torch.linalg.inv(x))
    assert list(counted().fallbacks) == ["aten::linalg_inv_ex.inverse"]


def test_training_in_eager_pytorch() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    x = torch.randn(2, 3, 8, 8)
    model(x).square().mean().backward()
    want = [p.grad for p in model.parameters()]
    model.zero_grad()
    model.to(NAME)
    model(x.to(NAME)).square().mean().backward()
    for p, w in zip(model.parameters(), want, strict=True):
        assert p.grad is not None
        torch.testing.assert_close(p.grad.cpu(), w)
    assert not counted().fallbacks
