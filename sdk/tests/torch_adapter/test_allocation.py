"""What allocates a launch list's tensors: when PyTorch's quicker function is chosen, and that it makes the same ones.

No GPU is needed: a stub stands for the function that allocates on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from keel.torch_adapter import allocator_on

CPU = torch.device("cpu")
SIZES = [((), ()), ((0,), (1,)), ((4,), (1,)), ((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 2), (5, 2)), ((3,), (0,))]
DTYPES = [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64, torch.float8_e4m3fn]


@pytest.mark.parametrize(("sizes", "dtype"), [*product(SIZES, DTYPES)], ids=str)
@pytest.mark.parametrize("inference", [False, True])
def test_tensors_are_those_of_empty_strided(sizes: Any, dtype: torch.dtype, inference: bool) -> None:
    with torch.inference_mode(inference):
        got = allocator_on(CPU)()(*sizes, dtype)
        want = torch.empty_strided(*sizes, dtype=dtype, device=CPU)
    for facts in (
        lambda t: (type(t), t.shape, t.stride(), t.dtype, t.device, t.layout, t.storage_offset()),
        lambda t: (t.is_inference(), t.requires_grad, t.is_leaf, t.untyped_storage().nbytes()),
        lambda t: 0 if t.is_inference() else t._version,
    ):
        assert facts(got) == facts(want)


def test_a_wrong_size_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        allocator_on(CPU)()((-1,), (1,), torch.float32)


class Functions(TorchFunctionMode):
    """Changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_default_device_does_not_matter() -> None:
    with torch.device("meta"), Functions():
        assert allocator_on(CPU)()((2,), (1,), torch.float32).device == CPU


def test_a_fake_mode_gets_fake_tensors() -> None:
    choose = allocator_on(CPU)
    with FakeTensorMode():
        assert isinstance(choose()((2,), (1,), torch.float32), FakeTensor)
    assert not isinstance(choose()((2,), (1,), torch.float32), FakeTensor)


def test_other_devices_are_served_by_empty_strided() -> None:
    meta = torch.device("meta")
    assert allocator_on(meta)()((2, 3), (1, 2), torch.float32).stride() == (1, 2)
    assert allocator_on(meta)()((2,), (1,), torch.float32).device == meta


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_memory_is_not_filled_under_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cpu", lambda *args: calls.append(args))
    with deterministic():
        allocator_on(CPU)()((2,), (1,), torch.float32)
    assert calls == [((2,), (1,), torch.float32)]


# -- a GPU, for which a stub stands ------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of the function that allocates on the current GPU, which has the number 1, and of the public one."""
    calls: list[Any] = []
    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda", lambda *args: calls.append(args), raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch, "empty_strided", lambda *args, **where: calls.append((*args, where)))
    return calls


ARGS = (2,), (1,), torch.float32


def test_the_current_gpu_is_allocated_on_directly(gpu: list[Any]) -> None:
    allocator_on(torch.device("cuda", 1))()(*ARGS)
    assert gpu == [ARGS]


@pytest.mark.parametrize("device", [torch.device("cuda", 0), torch.device("cuda")], ids=str)
def test_another_gpu_is_named(gpu: list[Any], device: torch.device) -> None:
    allocator_on(device)()(*ARGS)
    assert gpu == [(*ARGS[:2], {"dtype": torch.float32, "device": device})]


def test_which_gpu_is_the_current_one_is_asked_at_each_choice(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter((1, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: next(numbers))
    choose = allocator_on(torch.device("cuda", 1))
    choose()(*ARGS)
    choose()(*ARGS)
    assert [len(call) for call in gpu] == [3, 3] and gpu[0] == ARGS and "device" in gpu[1][2]


def test_a_pytorch_without_that_function_is_served_too(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cuda")
    allocator_on(torch.device("cuda", 1))()(*ARGS)
    assert "device" in gpu[0][2]
