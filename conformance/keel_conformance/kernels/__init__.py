"""Loop-IR kernels straight on a loop target's ``render`` and ``build``, compared with ``keel.loops.interpret``.

What is exact must be met bit for bit; a scalar operation keeps the budget of the operator of its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keel import KeelError, Launcher, LoopTarget
from keel.loops import Kernel, Store, verify, walk
from keel.testing import fitted, kernel_launchers

from ..cases.case import Case
from ..devices import HOST
from ..programs.compare_facts import summarize
from ..programs.observation import Observation
from ..results.verdict import Verdict
from . import kernel_generator, scalars, templates
from .compare_memory import compare, expectation
from .kernel_case import CALLS, KernelCase

__all__ = ["Builder", "KernelCase", "cases", "judge", "kernel_case_of", "run_case", "run_cases"]

Build = Callable[[Sequence[Kernel]], Sequence["Launcher | str"]]
"""Gives for each kernel a launcher, or the sentence that says why the target does not take it."""
SOME = 13
"""Smoke takes one scalar operation in this many. Each dtype is cast to 12 others, and so 12 would give few of these."""
DRAWN: Mapping[str, int] = {"smoke": 24, "standard": 300, "full": 3000}


@dataclass(frozen=True)
class Builder:
    """``Builder(target)(kernels)``: what the target lacks written out, rendered, built all at once."""

    target: LoopTarget

    def __call__(self, kernels: Sequence[Kernel]) -> list[Launcher | str]:
        ready = [self.ready(k) for k in kernels]
        built = iter(kernel_launchers(self.target, [k for k in ready if isinstance(k, Kernel)]))
        return [next(built) if isinstance(k, Kernel) else k for k in ready]

    def ready(self, kernel: Kernel) -> Kernel | str:
        target = self.target
        dtypes = {b.name: b.dtype for b in kernel.buffers}
        for dtype in dtypes.values():
            if dtype not in target.dtypes:
                return f"{target.name} has no {dtype}."
        for stmt in walk(kernel.body):
            if isinstance(stmt, Store) and (lacking := target.limits.lacks(stmt.mode, dtypes[stmt.buffer])):
                return f"{target.name} has no {lacking}."
            if (made := getattr(stmt, "dtype", None)) is not None and made not in target.dtypes:
                return f"{target.name} has no {made}."
        if len(kernel.buffers) > target.limits.max_buffers:
            return f"{target.name} takes {target.limits.max_buffers} buffers, not {len(kernel.buffers)}."
        try:
            return fitted(kernel, target)
        except KeelError as error:
            return error.what


def cases(tier: str = "standard", seed: int = 0) -> Iterator[Case]:
    """Each hand-written kernel at each dtype, at fixed and at symbolic sizes; each scalar operation at each dtype
    in several nests; drawn ones. Smoke takes a tenth of each.
    """
    count = 0
    for form in templates.FORMS.values():
        for dtype in form.dtypes:
            for static in (True, False):
                for more in range(4 if tier == "full" else 1):
                    count += 1
                    if tier == "smoke" and count % 12:
                        continue
                    first = (count + seed + 5 * more) % len(templates.SIZES)
                    sizes = f"{'fixed' if static else 'symbolic'}{first}"
                    yield _case(form.name, dtype, (("sizes", sizes), ("values", "exact")), form.clauses, seed)
    for n, (name, dtype) in enumerate(scalars.names()):
        for nest in scalars.NESTS if tier != "smoke" else ("alone",) if n % SOME == 1 else ():
            yield _case(
                f"scalar-{name}",
                dtype,
                (("sizes", "fixed" if nest == "turned" else "symbolic"), ("nest", nest), ("values", "special")),
                ("C2", "C6"),
                seed,
            )
    for n in range(DRAWN[tier]):
        yield _case("drawn", "", (("number", str(n)), ("values", "exact")), ("C1", "C3", "C4", "C7", "C8"), seed)


def _case(name: str, dtype: str, choice: tuple[tuple[str, str], ...], clauses: tuple[str, ...], seed: int) -> Case:
    return Case(
        f"kernel-{name}",
        "kernels",
        "kernel",
        "core",
        dtype=dtype,
        choice=choice,
        clauses=tuple(f"contract.kernels.{c}" for c in clauses),
        seed=seed,
    )


def kernel_case_of(case: Case) -> KernelCase:
    """The kernel of a case, checked, and what it is run on."""
    name = case.op.removeprefix("kernel-")
    if name == "drawn":
        return kernel_generator.made(case.seed * 100_003 + int(case.levels["number"]))
    if name.startswith("scalar-"):
        result = scalars.made(name.removeprefix("scalar-"), case.dtype, case.levels["nest"])
    else:
        sizes = case.levels["sizes"]
        static = sizes.startswith("fixed")
        result = templates.made(
            templates.FORMS[name], case.dtype, static, int(sizes.removeprefix("fixed" if static else "symbolic"))
        )
    verify(result.kernel)
    return result


def run_case(case: Case, compile: Build, device: str = HOST) -> Observation:
    """Builds the case's kernel and runs it three times, on other values and, where it is symbolic, at other sizes."""
    return run_cases([case], compile, device)[0]


def run_cases(cases: Sequence[Case], compile: Build, device: str = HOST) -> list[Observation]:
    """The same of many cases, built at once; where that raises, one by one."""
    start = time.perf_counter()
    results = [kernel_case_of(c) for c in cases]
    try:
        launchers = compile([m.kernel for m in results])
    except Exception as raised:
        if len(cases) > 1:
            return [run_case(c, compile, device) for c in cases]
        return [Observation((), summarize(raised), None, time.perf_counter() - start)]
    share = (time.perf_counter() - start) / max(len(cases), 1)
    return [_run(c, m, launcher, device, share) for c, m, launcher in zip(cases, results, launchers, strict=True)]


def _run(case: Case, made: KernelCase, launcher: Launcher | str, device: str, seconds: float) -> Observation:
    if isinstance(launcher, str):
        return Observation((("refused", "", launcher),), "", 0, seconds)
    start, facts = time.perf_counter(), list[tuple[str, str, Any]]()
    try:
        for call in range(CALLS):
            memory = made.memory(case.seed, call)
            held = [m.to(device) for m in memory]
            launcher(*(made.inner(m) for m in held), *made.symbols(call))
            facts += [
                (f"call{call} {b.name}", case.clauses[0], m.cpu())
                for b, m in zip(made.kernel.buffers, held, strict=True)
            ]
    except Exception as raised:
        return Observation(tuple(facts), summarize(raised), 1, seconds + time.perf_counter() - start)
    return Observation(tuple(facts), "", 1, seconds + time.perf_counter() - start)


def judge(case: Case, observed: Observation, device: str = HOST) -> Verdict:
    """Compares with the interpreter, which runs here."""
    made = kernel_case_of(case)
    if observed.error:
        return Verdict(
            case.id, "fail", "contract", f"It raised {observed.error}", case.clauses[0], {}, observed.seconds
        )
    if observed.parts == 0:
        return Verdict(case.id, "not claimed", "contract", str(observed.facts[0][2]), "", {}, observed.seconds)
    have = {name: value for name, _, value in observed.facts}
    worst: dict[str, Any] = {"ulps": 0.0}
    for call in range(CALLS):
        expected = expectation(made, case.seed, call)
        for b, want in zip(made.kernel.buffers, expected, strict=True):
            tensor = have[f"call{call} {b.name}"]
            sentence, clause, ulps = compare(made, b, tensor, want, call)
            worst["ulps"] = max(worst["ulps"], ulps)
            if sentence:
                oracle = "exact" if made.ulps is None else "ulp"
                sizes = ", ".join(f"{k} = {v}" for k, v in made.sizes[call].items())
                text = f"Call {call}{' at ' + sizes if sizes else ''}, {b.name}: {sentence}"
                return Verdict(
                    case.id, "fail", oracle, text, clause or case.clauses[0], {**worst, "call": call}, observed.seconds
                )
    return Verdict(case.id, "pass", "exact" if made.ulps is None else "ulp", figures=worst, seconds=observed.seconds)
