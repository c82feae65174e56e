"""Machine code that was compiled elsewhere: what is launched is what the backend launches that compiled it here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from keel import KeelError, Source
from keel.loops import Kernel
from keel.plugin import CodeObject, CompileContext, KernelFunction, SizeRange
from keel_triton import cubin_launchers, driver, target
from keel_triton.cubin_launchers import capabilities, checked, lacking, prepare
from keel_triton.driver import DeviceCode
from keel_triton.native_launch import Runs

from ..kernels import sizes_of
from .kernels import TEXTS, kernel

pytest.importorskip("triton", reason="triton is not installed")
built = importlib.import_module("keel_triton.build")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEEL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[DeviceCode]:
    """The machine code that is loaded onto a device which only has a number: functions are positions in this list."""
    from triton.backends.compiler import GPUTarget

    codes: list[DeviceCode] = []

    def load(code: DeviceCode, device: int, driver: Any) -> int:
        if code not in codes:
            codes.append(code)
        return codes.index(code)

    class Driver:
        cuLaunchKernel = None

    monkeypatch.setattr(driver, "load", load)
    monkeypatch.setattr(driver, "cuda", Driver)
    monkeypatch.setattr(built, "target_of", lambda device: GPUTarget("cuda", 80, 32))
    monkeypatch.setattr(cubin_launchers, "capabilities", lambda: frozenset({(8, 0)}))
    return codes


def described(runs: Runs) -> list[Any]:
    """The launches, in order: which buffers, and everything that the driver gets but their addresses."""
    return [(*which, replace(run, launch=print)) for which, run in runs]


def launched_here(k: Kernel, text: str, aligned: bool, values: tuple[int, ...]) -> list[Any]:
    one = built._Launchable(built.load(text), k)
    return described(one.prepare(0, aligned, values))


def launched_from(objects: list[CodeObject], source: Source, aligned: bool, values: tuple[int, ...]) -> list[Any]:
    ((_, steps),) = checked(objects, [source])
    return described(prepare(source.kernel, steps, 0, aligned, values))


SIZES = {"N": 4096, "M": 768, "K": 64}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("static", [True, False])
def test_launches_are_those_of_the_backend(name: str, static: bool, loaded: list[DeviceCode]) -> None:
    """The same machine code with the same grid and the same arguments in the same order, at the typical sizes."""
    sizes = {s: SIZES[s] for s in sizes_of(TEXTS[name])}
    k = kernel(name, **{s: v if static else None for s, v in sizes.items()})
    source = Source(k, target.render(k))
    ranges = {s: SizeRange(low=1, high=None, typical=v) for s, v in sizes.items()}
    objects = target.compile([source], "sm_80", ctx=CompileContext(sizes=ranges))
    values = tuple(sizes[s] for s in k.symbols)
    here = launched_here(k, source.text, True, values)
    assert here and launched_from(objects, source, True, values) == here
    if static:
        here = launched_here(k, source.text, False, values)
        assert launched_from(objects, source, False, values) == here


@pytest.mark.slow
def test_launches_at_other_sizes(loaded: list[DeviceCode]) -> None:
    """The numbers of programs differ where the blocks do; the arguments do not."""
    for name in ("layer_norm", "in_turn", "side_by_side"):
        k = kernel(name, **dict.fromkeys(sizes_of(TEXTS[name])))
        source = Source(k, target.render(k))
        objects = target.compile([source], "sm_80")
        exact = 0
        for values in ((1, 1, 1), (64, 64, 64), (17, 4096, 5), (65_536, 3, 1), (1_000_003, 1000, 7), (0, 5, 5)):
            values = values[: len(k.symbols)]
            here = launched_here(k, source.text, True, values)
            there = launched_from(objects, source, True, values)
            assert [(r[:-1], r[-1].numbers) for r in there] == [(r[:-1], r[-1].numbers) for r in here]
            assert [r[-1].parameters for r in there] == [r[-1].parameters for r in here]
            exact += [r[-1].programs for r in there] == [r[-1].programs for r in here]
        assert exact >= 3, f"{name}: blocks that conditions choose are those of the backend"


def objects_of(name: str = "softmax") -> tuple[Source, list[CodeObject]]:
    k = kernel(name, N=8, M=8)
    return Source(k, target.render(k)), target.compile([Source(k, target.render(k))], "sm_80")


def test_a_launcher_launches(loaded: list[DeviceCode], monkeypatch: pytest.MonkeyPatch) -> None:
    source, objects = objects_of()
    calls: list[Any] = []

    def run_of(code: DeviceCode, device: int, programs: int, *rest: Any) -> Any:
        run = driver.Run(0, programs, 32, 0, (), 4, lambda addresses, stream: calls.append((device, addresses, stream)))
        return run

    monkeypatch.setattr(cubin_launchers, "run_of", run_of)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)  # the device of tensors of the CPU
    monkeypatch.setattr("keel_triton.prepared_launches.stream_handle", lambda device: 7)
    (launch,) = target.load(objects, [source])
    x, y = torch.zeros(64), torch.zeros(64)
    launch(x, y)
    launch(y, x)
    assert calls == [(-1, [x.data_ptr(), y.data_ptr()], 7), (-1, [y.data_ptr(), x.data_ptr()], 7)]


def test_a_kernel_that_launches_nothing(loaded: list[DeviceCode]) -> None:
    k = kernel("softmax", N=0, M=8)
    source = Source(k, target.render(k))
    assert launched_from(target.compile([source], "sm_80"), source, True, ()) == []


# -- what does not fit -------------------------------------------------------------------------------------------------


def changed(objects: list[CodeObject], **launch: Any) -> list[CodeObject]:
    def function(one: KernelFunction) -> KernelFunction:
        return replace(one, launch={**one.launch, **launch})

    return [replace(each, functions=tuple(map(function, each.functions))) for each in objects]


CHANGES: dict[str, dict[str, Any]] = {
    "another kernel's symbols": {"symbols": ["N"]},
    "a step that the kernel lacks": {"step": 4},
    "a buffer that the kernel lacks": {"parameters": [["buffer", 9]]},
    "a parameter of another kind": {"parameters": [["float", 1]]},
    "numbers before buffers": {"parameters": [["int32", 1], ["buffer", 0]]},
    "no block": {"block": None},
    "two dimensions": {"grid": [1, 2, 1]},
    "a cluster": {"cluster": [2, 1, 1]},
    "shared memory in words": {"shared": "16"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_launches_that_cannot_be_read(change: str, loaded: list[DeviceCode]) -> None:
    source, objects = objects_of()
    with pytest.raises(KeelError, match="bad-artifact"):
        target.load(changed(objects, **CHANGES[change]), [source])


def test_an_expression_over_other_symbols(loaded: list[DeviceCode]) -> None:
    source, objects = objects_of()
    with pytest.raises(KeelError, match=r"bad-artifact.*'s7' is not an expression"):
        launched_from(changed(objects, grid=["s7", 1, 1]), source, True, ())


def test_machine_code_without_a_launch(loaded: list[DeviceCode]) -> None:
    source, objects = objects_of("in_turn")
    first = [replace(o, functions=tuple(f for f in o.functions if f.launch["step"] == 0)) for o in objects]
    with pytest.raises(KeelError, match=r"bad-artifact.*in_turn lacks one of its launches"):
        target.load(first, [source])
    conditions = changed(objects, conditions=[["StrictLessThan", 2, 1]])
    with pytest.raises(KeelError, match=r"bad-artifact.*No function of in_turn_0 may be launched"):
        launched_from(conditions, source, True, ())


def test_a_machine_that_cannot_run_it(golden: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    source, objects = objects_of()
    texts = []
    for devices in (set(), {(9, 0), (7, 5)}):
        monkeypatch.setattr(cubin_launchers, "capabilities", lambda devices=devices: frozenset(devices))
        with pytest.raises(KeelError) as caught:
            target.load(objects, [source])
        texts.append(str(caught.value))
    golden("\n".join(texts) + "\n")


@pytest.mark.parametrize(
    ("feature", "device", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 0), True),
        ("sm_100a", (10, 3), False),
        ("gfx942", (9, 0), False),
    ],
)
def test_which_devices_run_what(feature: str, device: tuple[int, int], runs: bool) -> None:
    assert (lacking([("cuda", feature)], {device}) == "") == runs
    assert (lacking([("cuda", feature)], {(3, 0), device}) == "") == runs
    assert lacking([("cpu", feature)], {device}) != "" and lacking([], set()) == ""


def test_devices_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6 * device))
    assert capabilities() == {(8, 0), (8, 6)}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert capabilities() == frozenset()
