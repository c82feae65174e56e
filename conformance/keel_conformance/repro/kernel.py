"""A failing kernel as a script: its text, what it is run on, and the first elements that are wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from keel.loops import show
from keel.minify import assemble, tensor

from ..cases.case import Case
from ..harness.backend_under_test import load_backend
from ..kernels import Builder, KernelCase, kernel_case_of, run_case
from ..kernels.compare_memory import expectation, off
from ..kernels.kernel_case import ZONE
from ..results.verdict import Verdict
from .replay import ReplayPool
from .script import backend_of, title

SHOWN = 8
"""Elements that a script compares."""
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""What dtypes that cannot be compared are looked at as."""
KernelFailure = tuple[Case, str, Verdict]


def of_kernel(failure: KernelFailure, bench: ReplayPool, *, trying: bool = True) -> str:
    """The script of a case's kernel on a backend, with what it should give where a process could run it.  Raises
    ValueError for one that has no text of forty lines.
    """
    result: str | None = bench.value(with_results, failure) if trying else None
    return result if result is not None else _script(failure, kernel_case_of(failure[0]), failure[2].call, _RUNS)


_RUNS = ('print("expected that it is built and runs, and it was and did")',)


def with_results(failure: KernelFailure) -> str:
    """The script of a kernel, which is run here for the elements that are wrong."""
    case, text, v = failure
    made, under_test = kernel_case_of(case), load_backend(text)
    target = under_test.backend.target
    observed = run_case(case, Builder(target), under_test.device) if target is not None else None
    have = {name: value for name, _, value in observed.facts} if observed is not None and not observed.error else {}
    for call in range(len(made.sizes)):
        for k, (b, want) in enumerate(zip(made.kernel.buffers, expectation(made, case.seed, call), strict=True)):
            if (actual := have.get(f"call{call} {b.name}")) is not None:
                places, right, allowed = off(made, b, actual, want, call)
                if len(places):
                    return _script(failure, made, call, _compared(k, places, right, allowed))
    return _script(failure, made, v.call, _RUNS)


def _compared(buffer: int, places: Tensor, right: Tensor, allowed: Tensor) -> tuple[str, ...]:
    places, right, allowed = places[:SHOWN], right[:SHOWN], allowed[:SHOWN]
    other = SIGNED.get(right.dtype)
    view = "" if other is None else f".view({other})"
    near = " | ((found - want).abs() <= allowed)" if right.is_floating_point() or right.is_complex() else ""
    return (
        f"at = torch.tensor({places.tolist()})",
        f"found = memory[{buffer}].cpu(){view}[at]",
        f"want = {tensor(right if other is None else right.view(other))}",
        f"allowed = {tensor(allowed.double())}",
        f'print("expected", want, "found", found, "allowed error", allowed, "at", at - {ZONE})',
        f"sys.exit(not ((found == want) | (found != found) & (want != want){near}).all())",
    )


def _script(failure: KernelFailure, made: KernelCase, call: int, checks: tuple[str, ...]) -> str:
    case, text, v = failure
    backend, memory = backend_of(text), made.memory(case.seed, call)
    kernel = show(made.kernel).strip().splitlines()
    body = [
        f"target = keel.testing.resolve([{backend.single}])[0].target",
        "ready = keel.testing.fitted(kernel, target)",
        "(launch,) = keel.testing.kernel_launchers(target, [ready])",
        "memory = [",
        *(f"    {tensor(m)}," for m in memory),
        "]",
        f"memory = [m.to({load_backend(text).device!r}) for m in memory]",
        f"launch(*(m[{ZONE}:len(m) - {ZONE}] for m in memory){''.join(f', {n}' for n in made.symbols(call))})",
        *checks,
    ]
    lines = ['kernel = keel.loops.parse("""' + kernel[0], *kernel[1:], '""")']
    try:
        return assemble(title(v, text), backend.imports, [*lines, *body])
    except ValueError:  # of many statements: all in one line
        line = f"kernel = keel.loops.parse({chr(10).join(kernel) + chr(10)!r})"
        return assemble(title(v, text), backend.imports, [line, *body])
