"""Collectives, waits and overlap are read from a profile."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel_bench.distributed.step_trace import STEP, figures, hidden, traced


def event(name: str, begin: float, length: float = 1.0, cat: str = "cpu_op", tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": begin, "dur": length, "cat": cat, "tid": tid}


WINDOW = event(STEP, 0.0, 100.0, "user_annotation")


def test_collectives_are_in_the_order_of_their_starts() -> None:
    result = figures(
        [
            WINDOW,
            event("_c10d_functional::wait_tensor", 30),
            event("c10d::_reduce_scatter_base_", 50),
            event("CompiledFunctionBackward", 40, 20),
            event("_c10d_functional::all_gather_into_tensor", 10),
            event("_c10d_functional::all_reduce_", 20),
            event("c10d::allreduce_", 110),
        ]
    )
    assert result["order"] == ["all_gather_into_tensor", "all_reduce", "backward", "reduce_scatter_base"]
    assert result["waits"] == 1


def test_what_a_collective_calls_is_not_counted() -> None:
    outer = event("_c10d_functional::all_gather_into_tensor_out", 10, 5)
    inner = event("c10d::allgather_into_tensor_coalesced_", 11)
    wrapped = event("_c10d_functional::_wrap_tensor_autograd", 16)
    other = event("c10d::allreduce_", 12, tid=2)
    assert figures([WINDOW, outer, inner, wrapped])["order"] == ["all_gather_into_tensor"]
    assert figures([WINDOW, outer, other])["order"] == ["all_gather_into_tensor", "allreduce"]


def test_synchronizations_outside_of_the_step_do_not_count() -> None:
    launch = event("cudaLaunchKernel", 5, cat="cuda_runtime")
    waits = [event(name, at, cat="cuda_runtime") for name, at in (("cudaStreamSynchronize", 6), ("cudaMemcpy", 7))]
    other = event("cudaMemcpyAsync", 8, cat="cuda_runtime")
    after = event("cudaDeviceSynchronize", 105, cat="cuda_runtime")
    assert figures([WINDOW, launch, other, after])["synchronizations"] == 0
    assert figures([WINDOW, launch, *waits, other, after])["synchronizations"] == 2
    assert figures([WINDOW])["synchronizations"] is None


def test_communication_is_hidden_behind_other_kernels() -> None:
    kernels = [event("ncclDevKernel", 0, 10), event("gemm", 2, 3), event("add", 4, 2), event("mul", 20, 5)]
    assert hidden(kernels) == pytest.approx(0.4)
    assert hidden(kernels[1:]) is None


def test_numbers_that_the_host_reads_are_counted() -> None:
    x = torch.ones(2)
    result = traced(lambda: x.sum().item(), lambda: None)
    assert (result["reads"], result["order"], result["kernels"]) == (1, [], 0)
