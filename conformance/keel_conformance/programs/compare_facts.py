"""Compares the facts that a compiled contract program recorded with those that eager PyTorch recorded.

Every fact of an exact program must be equal. In a program that rounds, floating values may differ from the float64 run
by

    8 * E + 16 * u * max|x|,

The float64 program is evaluated several times, and the result of every operator is multiplied by 1 + k u r. Here r is
uniform in [-1, 1], u is the unit roundoff of float32, and k is a constant (see ``noise``). E is the largest deviation
of the element, or the root mean square of the deviations of its tensor if that is larger. This is Monte Carlo
arithmetic (Parker, Pierce, Eggert: Monte Carlo arithmetic, 2000): the program's own conditioning sets the bound, and a
legal evaluation is one more draw with a smaller spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..devices import HOST, default_device
from ..results.verdict import Verdict
from .context import Context
from .monte_carlo import Noise
from .observation import Fact, Observation, same
from .program import Program

TIMES, FLOOR = 8.0, 16.0
ANY_CALL = frozenset({"mutation", "views", "aliases", "layouts", "graphs", "arguments"})
"""Chapters about what holds at any one call: what is wrong as an earlier call's results are breaks none of theirs."""
ENOUGH = 6
"""Wrong elements, small integers all, that are an earlier call's by no chance."""


def run_program(
    program: Program, compiler: Callable[..., Any], seed: int, calls: int, device: str = HOST, *, wide: bool = False
) -> Context:
    """Runs the program from a clean state on the device; the context has the facts. Raises what the program raises."""
    torch.compiler.reset()
    torch.manual_seed(seed)
    ctx = Context(compiler, program.clauses[0], seed, calls, wide, HOST if program.hosted else device)
    with default_device(ctx.device):
        program.body(ctx)
    return ctx


def summarize(error: Exception) -> str:
    """What it was and, of the parties, the first one's reason, in a line."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"


def judge(
    program: Program,
    case: str,
    observed: Observation,
    expected: Observation,
    noisy: Callable[[], Iterator[Observation]],
    device: str = HOST,
) -> Verdict:
    """``expected`` is eager PyTorch's run on the device; ``noisy`` gives the float64 run, and then the disturbed ones.
    Some devices do not run every program in eager PyTorch.
    """

    def verdict(status: Any, oracle: str, sentence: str = "", clause: str = "", **figures: Any) -> Verdict:
        return Verdict(case, status, oracle, sentence, clause, figures, observed.seconds)

    if expected.error:
        status = "harness error" if device == HOST else "not run"
        return verdict(status, "contract", f"Eager PyTorch cannot run it: {expected.error}")
    if observed.error:
        return verdict("fail", "contract", f"It raised {observed.error}", program.clauses[0])
    if failure := first_failure(observed, expected, program.exact):
        name, clause, sentence = failure
        exact = "values" in name and not name.startswith("must: ")
        return verdict("fail", "exact" if exact else "contract", sentence, clause)
    ratio = 0.0
    if not program.exact:
        worst = worst_of(observed, expected, list(noisy()))
        ratio = worst.ratio
        if ratio > 1:
            return verdict("fail", "composite", worst.sentence, worst.clause, ratio=ratio)
    if observed.parts == 0:
        return verdict("not claimed", "contract", "The backend took none of its operators.")
    return verdict("pass", "exact" if program.exact else "composite", ratio=ratio)


def first_failure(observed: Observation, expected: Observation, exact: bool = True) -> tuple[str, str, str] | None:
    """The first fact that differs from eager PyTorch's, or else the first that must hold and does not: its name, its
    clause, and a sentence.
    """
    if difference := differences(observed, expected, exact):
        name, clause, sentence = difference
        return name, clause, f"{name}: {sentence}"
    false = next((f for f in observed.facts if not _true(f)), None)
    return false and (false[0], false[1], f"{false[0].removeprefix('must: ')} does not hold.")


def _true(fact: tuple[str, str, Any]) -> bool:
    return not fact[0].startswith("must: ") or fact[2] is True


def differences(observed: Observation, expected: Observation, exact: bool) -> tuple[str, str, str] | None:
    """The first fact that differs and must not: its name, clause, and how."""
    facts, expected_facts = {f[0]: f for f in observed.facts}, {f[0]: f for f in expected.facts}
    for name, clause, want in expected.facts:
        if name.startswith("must: "):
            continue
        if name not in facts:
            return name, clause, "eager PyTorch recorded it, the compiled program did not."
        if sentence := _difference(facts[name][2], want, exact):
            retained = _of_earlier(name, facts[name][2], want, expected_facts)
            return (
                (name, "contract.calls.C1", f"{retained} {sentence}")
                if retained and clause.split(".")[1] in ANY_CALL
                else (name, clause, sentence)
            )
    if extra := next((f for f in observed.facts if f[0] not in expected_facts and not f[0].startswith("must: ")), None):
        return extra[0], extra[1], "the compiled program recorded it, eager PyTorch did not."
    return None


def _of_earlier(name: str, have: Any, want: Any, expected: Mapping[str, Fact]) -> str:
    """Says of which earlier call a tensor has what is wrong in it, if that is more than chance makes likely."""
    call, dot, rest = name.partition(".")
    number = call.removeprefix("call")
    if not (dot and number.isdecimal() and isinstance(have, Tensor) and isinstance(want, Tensor)):
        return ""
    wrong = have != want if (have.dtype, have.shape) == (want.dtype, want.shape) else None
    for k in range(int(number)):
        earlier = expected.get(f"call{k}.{rest}", ("", "", None))[2]
        if (
            wrong is not None
            and int(wrong.sum()) >= ENOUGH
            and isinstance(earlier, Tensor)
            and (earlier.dtype, earlier.shape) == (want.dtype, want.shape)
            and bool((have == earlier)[wrong].all())
        ):
            return f"It has what call {k} gave."
    return ""


def _difference(have: Any, want: Any, exact: bool) -> str:
    if isinstance(want, Tensor) and isinstance(have, Tensor):
        if (have.dtype, have.shape) != (want.dtype, want.shape):
            return f"{have.dtype} {list(have.shape)}, should be {want.dtype} {list(want.shape)}."
        if same(have, want) or not (exact or not want.is_floating_point()):
            return ""
        wrong = ~((have == want) | ((have != have) & (want != want)))
        at = wrong.nonzero()[0].tolist()
        return (
            f"{int(wrong.sum())} of {want.numel()} elements differ, first at {at}: "
            f"{have[tuple(at)].item()}, should be {want[tuple(at)].item()}."
        )
    if isinstance(want, float) and isinstance(have, float) and not exact:
        return ""
    return "" if type(have) is type(want) and have == want else f"{have!r}, should be {want!r}."


class Worst(NamedTuple):
    """The largest ``ratio`` of a value's error to its bound, the clause that is broken if it is above 1, a sentence on
    it, and the name of the value.
    """

    ratio: float = 0.0
    clause: str = ""
    sentence: str = ""
    value: str = ""


def worst_of(observed: Observation, expected: Observation, runs: list[Observation]) -> Worst:
    """The first value whose error is above its bound, or else the worst one."""
    reference, disturbed = runs[0], [{f[0]: f[2] for f in r.facts} for r in runs[1:]]
    facts, expected_facts = ({f[0]: f[2] for f in o.facts} for o in (observed, expected))
    worst = Worst()
    for name, clause, exact in reference.facts:
        have = facts.get(name)
        if not (isinstance(have, Tensor) and isinstance(exact, Tensor) and have.is_floating_point() and have.numel()):
            continue
        unit = torch.finfo(have.dtype).eps / 2
        exact, error = exact.double(), (have.double() - exact.double()).abs()
        spread = torch.stack([(d[name].double() - exact).abs() for d in disturbed]).amax(0)
        known = exact.isfinite() & spread.isfinite()  # of the others neither size nor spread says anything
        usual = torch.where(known, spread, 0.0).square().mean().sqrt()
        bound = TIMES * torch.maximum(spread, usual) + FLOOR * unit * torch.where(known, exact, 0.0).abs().amax()
        # Where the float64 run has no finite number, eager's classes are what counts.
        finite = exact.isfinite() & expected_facts[name].isfinite()
        classes = have.isfinite() == expected_facts[name].isfinite()
        ratio = torch.where(finite, error / bound.clamp_min(1e-300), torch.where(classes, 0.0, torch.inf))
        ratio = torch.where(finite & ~have.isfinite(), torch.inf, ratio)
        if float(ratio.max()) > worst.ratio:
            at = [int(k) for k in torch.unravel_index(ratio.argmax(), ratio.shape)]
            where = tuple(at)
            sentence = (
                f"{name}: at {at} {have[where].item():.9g}, exactly {exact[where].item():.9g}: off by "
                f"{error[where].item():.3g}, allowed {bound[where].item():.3g}."
            )
            worst = Worst(float(ratio.max()), clause, sentence, name)
            if worst.ratio > 1:
                break
    return worst


def noisy_runs(program: Program, seed: int, calls: int, plain: Callable[..., Any]) -> Iterator[Observation]:
    """The float64 run, and then the disturbed ones."""

    def wide() -> Observation:
        return Observation(run_program(program, plain, seed, calls, wide=True).finish())

    yield wide()
    yield from disturbed_by(
        lambda k: Noise(seed * program.noise + k, torch.finfo(torch.float32).eps / 2), program.noise, wide
    )


def disturbed_by(noise: Callable[[int], Noise], count: int, wide: Callable[[], Observation]) -> Iterator[Observation]:
    """``wide``, which runs in float64, under each of ``count`` noises."""
    for k in range(count):
        with noise(k):
            results = wide()
        yield results
