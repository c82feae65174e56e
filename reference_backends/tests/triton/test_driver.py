"""What is handed to the CUDA driver, seen by a driver that only takes notes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from keel import KeelError
from keel_triton.driver import INVALID_CONTEXT, parameters, runner


@dataclass
class Notes:
    """Stands for libcuda: reads the parameters of each launch where a device would."""

    numbers: int
    codes: dict[str, list[int]] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    wait: Any = None

    def code(self, call: str) -> int:
        left = self.codes.get(call)
        return left.pop(0) if left else 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> int:
        self.calls.append(("enter", device))
        return self.code("enter")

    def cuCtxSetCurrent(self, context: Any) -> int:
        return 0

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        self.calls.append(("load", image))
        return self.code("load")

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        self.calls.append(("function", name))
        function._obj.value = 4242
        return 0

    def cuFuncSetAttribute(self, function: Any, which: int, value: int) -> int:
        self.calls.append(("attribute", which, value))
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        shape, where = tuple(v.value or 0 for v in rest[:8]), rest[8]
        given = [ctypes.cast(p, ctypes.POINTER(ctypes.c_uint64))[0] for p in where]
        if self.wait is not None:
            self.wait()
        assert given == [ctypes.cast(p, ctypes.POINTER(ctypes.c_uint64))[0] for p in where], "overwritten in flight"
        self.calls.append(("launch", function.value, shape, given))
        return self.code("launch")

    def __hash__(self) -> int:
        return id(self)


def compiled(params: int, **changed: Any) -> Any:
    given = ",\n".join(f"\t.param .u64 k_param_{i}" for i in range(params))
    ptx = f".visible .entry k(\n{given}\n)\n.reqntid 128\n{{"
    metadata = {
        "name": "k",
        "shared": 1024,
        "num_warps": 4,
        "num_ctas": 1,
        "global_scratch_size": 0,
        "profile_scratch_size": 0,
    } | changed
    return type("Kernel", (), {"asm": {"ptx": ptx, "cubin": b"code"}, "metadata": SimpleNamespace(**metadata)})()


def test_a_launch() -> None:
    notes = Notes(2)
    run = runner(compiled(6), 3, 77, 2, (100, 5), notes)
    run.launch([1000, 2000], 9)
    run.launch([3000, 4000], 8)
    assert notes.calls == [
        ("enter", 3),
        ("load", b"code"),
        ("function", b"k"),
        ("launch", 4242, (77, 1, 1, 128, 1, 1, 1024, 9), [1000, 2000, 100, 5, 0, 0]),
        ("launch", 4242, (77, 1, 1, 128, 1, 1, 1024, 8), [3000, 4000, 100, 5, 0, 0]),
    ]


def test_code_is_loaded_once_a_device() -> None:
    notes, kernel = Notes(0), compiled(3)
    for device in (0, 0, 1):
        runner(kernel, device, 1, 1, (), notes)
    assert [c[0] for c in notes.calls] == ["enter", "load", "function"] * 2
    assert [c[1] for c in notes.calls if c[0] == "enter"] == [0, 1]


def test_much_shared_memory_is_asked_for() -> None:
    notes = Notes(0)
    runner(compiled(3, shared=100_000), 0, 1, 1, (), notes)
    assert ("attribute", 8, 100_000) in notes.calls


def test_a_thread_without_a_context_gets_one() -> None:
    notes = Notes(0, {"launch": [INVALID_CONTEXT, 0]})
    run = runner(compiled(3), 2, 1, 1, (), notes)
    run.launch([1], 0)
    assert [c[0] for c in notes.calls[-3:]] == ["launch", "enter", "launch"]


def test_errors_have_the_drivers_number() -> None:
    with pytest.raises(KeelError, match=r"cuModuleLoadData failed with error 209"):
        runner(compiled(3), 0, 1, 1, (), Notes(0, {"load": [209]}))
    run = runner(compiled(3), 0, 1, 1, (), Notes(0, {"launch": [700]}))
    with pytest.raises(KeelError, match=r"build-failed.*cuLaunchKernel failed with error 700"):
        run.launch([1], 0)


@pytest.mark.parametrize(
    ("kernel", "given"),
    [(compiled(3), 4), (compiled(7), 4), (compiled(6, global_scratch_size=64), 4), (compiled(6, num_ctas=2), 4)],
)
def test_functions_that_take_something_else_are_refused(kernel: Any, given: int) -> None:
    with pytest.raises(KeelError, match="k cannot be launched"):
        parameters(kernel, given)


def test_calls_from_several_threads_keep_their_parameters() -> None:
    notes = Notes(0)
    run = runner(compiled(3), 0, 1, 1, (), notes)
    others = iter([lambda: [run.launch([k], 0) for k in (1, 2)], None])

    def wait() -> None:
        if (other := next(others, None)) is not None:
            notes.wait = None
            thread = Thread(target=other)
            thread.start()
            thread.join()

    notes.wait = wait
    run.launch([7], 0)
    assert sorted(c[3][0] for c in notes.calls if c[0] == "launch") == [1, 2, 7]
