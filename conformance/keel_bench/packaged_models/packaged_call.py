"""The processes of a model that is packaged: one that packages it, and one that loads it. What the C++ runtime gets.

A folder has the package, ``case.pt`` (the flat arguments of each call and the results that the compiled model gave),
and for the C++ runtime ``calls.txt`` with a file for each argument.
"""

from __future__ import annotations

import inspect
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import keel
from keel_conformance.models import ModelCase
from keel_conformance.workers.pool import ReportPhase

from ..models import model_zoo

PACKAGE, AOTI_PACKAGE, CASE, CALLS = "model.keel", "model.pt2", "case.pt", "calls.txt"
STATIC, DYNAMIC = "static", "dynamic"
TIMED = 30
"""Calls that are timed; figures are medians."""


@dataclass(frozen=True)
class PackagedCall:
    """One process, by name: of a model of the zoo, with static or dynamic sizes, in a folder."""

    name: str
    model: str
    sizes: str
    backend: str
    folder: Path
    threads: int = 1
    device: str = "cpu"


def work(process: PackagedCall, tell: ReportPhase) -> dict[str, Any]:
    """The figures of a process."""
    torch.set_num_threads(process.threads)
    return WORK[process.name](process, tell)


def package(process: PackagedCall, tell: ReportPhase) -> dict[str, Any]:
    """Exports and packages a model, and calls what ``compile_exported`` makes of it."""
    tell("building the model")
    sizes = model_zoo.sizes(process.model)[:2]
    cases = [model_zoo.build(process.model, size=size, device=process.device) for size in sizes]
    tell("exporting the model")
    program = exported(cases, process.sizes)
    calls = [leaves(case) for case in (cases if process.sizes == DYNAMIC else cases[:1])]
    tell("packaging the model")
    began = time.perf_counter()
    keel.package(program, process.folder / PACKAGE, backends=[process.backend, "eager"])
    seconds = time.perf_counter() - began
    tell("compiling the model")
    compiled = keel.compile_exported(program, backends=[process.backend, "eager"])
    results, left_out = list[list[Any]](), []
    for case in cases[: len(calls)]:
        try:
            results.append(leaves_of(compiled(*case.args, **case.kwargs)))
        except keel.KeelError as raised:  # the export fixed a size
            if raised.code != "bad-input" or not results:
                raise
            left_out.append(str(raised))
    calls = calls[: len(results)]
    torch.save({"calls": calls, "results": results}, process.folder / CASE)
    write_calls(calls, process.folder)
    return {
        "package_s": seconds,
        "bytes": (process.folder / PACKAGE).stat().st_size,
        "calls": len(calls),
        "left_out": left_out,
    }


def exported(cases: Sequence[ModelCase], sizes: str) -> torch.export.ExportedProgram:
    """The exported model of the first case. Dynamic are the sizes in which the cases differ."""
    case, dynamic = cases[0], None
    case.model.eval()
    if sizes == DYNAMIC:
        names, other = inspect.signature(case.model.forward).parameters, cases[1]
        args = {n: _free_sizes(*pair) for n, *pair in zip(names, case.args, other.args, strict=False)}
        dynamic = args | {name: _free_sizes(value, other.kwargs[name]) for name, value in case.kwargs.items()}
    return torch.export.export(case.model, tuple(case.args), dict(case.kwargs), dynamic_shapes=dynamic, strict=False)


def _free_sizes(first: Any, second: Any) -> Any:
    if not isinstance(first, torch.Tensor):
        return None
    pairs = enumerate(zip(first.shape, second.shape, strict=True))
    return {d: torch.export.Dim.AUTO for d, (n, m) in pairs if n != m}


def leaves(case: ModelCase) -> list[Any]:
    """The flat arguments of a call."""
    return leaves_of((tuple(case.args), dict(case.kwargs)))


def leaves_of(value: Any) -> list[Any]:
    """The tensors and numbers in a nest of mappings and sequences, in order."""
    match value:
        case Mapping():
            return [leaf for each in value.values() for leaf in leaves_of(each)]
        case tuple() | list():
            return [leaf for each in value for leaf in leaves_of(each)]
    return [value]


def load(process: PackagedCall, tell: ReportPhase) -> dict[str, Any]:
    """Loads the package in a process that has not compiled anything, and calls it."""
    case = torch.load(process.folder / CASE, weights_only=False)
    keel.testing.find(process.backend)  # a plugin is imported once, however many packages are loaded

    tell("loading the package")
    began = time.perf_counter()
    loaded = keel.load_package(process.folder / PACKAGE, trusted=True, check_weights=False)
    seconds = time.perf_counter() - began
    results, firsts = [], []
    tell("calling the package")
    for call in case["calls"]:
        began = time.perf_counter()
        results.append(loaded.call_flat([_copy(leaf) for leaf in call]))
        wait(process.device)
        firsts.append(time.perf_counter() - began)
    wrong = [
        f"call {k}, result {i}"
        for k, (got, want) in enumerate(zip(results, case["results"], strict=True))
        for i, (a, b) in enumerate(zip(got, want, strict=True))
        if not same(a, b)
    ]
    call = case["calls"][0]
    return {
        "load_s": seconds,
        "first_s": firsts,
        "call_us": 1e6 * median_seconds(lambda: loaded.call_flat(call), process.device),
        "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "wrong": wrong,
        "runtime": runtime_reason(process.folder / PACKAGE),
    }


def median_seconds(call: Callable[[], Any], device: str) -> float:
    """The median time of a call, until its results are there."""
    times = []
    for _ in range(TIMED):
        began = time.perf_counter()
        call()
        wait(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def wait(device: str) -> None:
    """Waits for the work on a device."""
    if device != "cpu":
        torch.accelerator.synchronize()


def runtime_reason(path: Path) -> str | None:
    """Why the C++ runtime cannot run a package; None if it can."""
    variant = keel.load_package(path, trusted=True, check_weights=False).manifest.variants[0]
    return variant.why_no_program


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def same(first: Any, second: Any) -> bool:
    """True if two results have the same bits."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return first.dtype == second.dtype and first.shape == second.shape and bits(first) == bits(second)
    return type(first) is type(second) and first == second


def bits(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in row-major order."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(plain.view(torch.uint8).numpy().data) if plain.numel() else b""


# -- for the C++ runtime -----------------------------------------------------------------------------------------------

CODES: Mapping[torch.dtype, tuple[int, int]] = {
    torch.int8: (0, 8),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.bool: (6, 8),
}
"""The code and the bits of each dtype in DLPack."""


def write_calls(calls: Sequence[Sequence[Any]], folder: Path) -> None:
    """Writes the arguments of each call: ``call``, then a line for each tensor with code, bits, sizes and file."""
    lines = []
    for k, call in enumerate(calls):
        lines.append("call")
        for i, leaf in enumerate(call):
            if leaf is None or isinstance(leaf, str | bool):
                continue  # the program was exported for its value
            tensor = leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
            name = f"in_{k}_{i}.bin"
            (folder / name).write_bytes(bits(tensor))
            lines.append(" ".join(map(str, (*CODES[tensor.dtype], tensor.dim(), *tensor.shape, name))))
    (folder / CALLS).write_text("\n".join([*lines, ""]))


# -- AOTInductor -------------------------------------------------------------------------------------------------------


def aoti_package(process: PackagedCall, tell: ReportPhase) -> dict[str, Any]:
    """The same by AOTInductor."""
    from torch._inductor import aoti_compile_and_package

    tell("exporting the model")
    size = model_zoo.sizes(process.model)[0]
    program = exported([model_zoo.build(process.model, size=size, device=process.device)], STATIC)
    tell("packaging the model")
    path = process.folder / AOTI_PACKAGE
    began = time.perf_counter()
    aoti_compile_and_package(program, package_path=str(path))
    return {"package_s": time.perf_counter() - began, "bytes": path.stat().st_size}


def aoti_load(process: PackagedCall, tell: ReportPhase) -> dict[str, Any]:
    """Loads the package of AOTInductor in another process, and calls it."""
    from torch._inductor import aoti_load_package

    call = torch.load(process.folder / CASE, weights_only=False)["calls"][0]
    tell("loading the package")
    began = time.perf_counter()
    loaded = aoti_load_package(str(process.folder / AOTI_PACKAGE))
    seconds = time.perf_counter() - began
    tell("calling the package")
    began = time.perf_counter()
    loaded(*call)
    wait(process.device)
    first = time.perf_counter() - began
    return {
        "load_s": seconds,
        "first_s": [first],
        "call_us": 1e6 * median_seconds(lambda: loaded(*call), process.device),
        "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


WORK: Mapping[str, Callable[[PackagedCall, ReportPhase], dict[str, Any]]] = {
    "package": package,
    "load": load,
    "aoti_package": aoti_package,
    "aoti_load": aoti_load,
}
