"""The verdict on what a backend gave for one call: oracles in order, from the contract to the numbers.

Nothing of a backend comes in here but its results. What they should be is computed from the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor

from keel import Call, TensorType
from keel.opset import MEMBERS, Op, Results, bind
from keel.plugin import Arithmetic

from ..cases.case import Case, Inputs
from ..cases.inputs import REDRAWN
from ..devices import HOST
from ..pytree import tree_map
from ..results.verdict import Verdict
from . import (
    device_differences,
    dot_products,
    histogram_totals,
    linalg_properties,
    metadata,
    relative_to_eager,
    rounding_bias,
    sorting_properties,
    unspecified,
    zero_signs,
)
from .compare import Finding, compare
from .eager_variants import eager_variants, result_of
from .error_rules import IEEE, CallContext, NoRule, flat, narrowed, widened
from .running_error import analyze
from .tracked_tensor import Evaluate, Tracked, errors, inexact, tracked


@dataclass(frozen=True)
class Expected:
    """What the oracles know of a call: eager's results, and the tracked ones with the oracle that they come from;
    eager's on the backend's device, where those are asked for. Bounds are those of ``arithmetic``.
    """

    member: Op
    eager: tuple[Any, ...]
    tracked: tuple[Any, ...] | None
    oracle: str
    there: tuple[Any, ...] = ()
    arithmetic: Arithmetic = IEEE


@dataclass(frozen=True)
class JudgedCall:
    """One call of a case, and what a backend gave for it.

    ``eager`` is what eager PyTorch gives on the host, ``results`` the backend's, flat, of the same types; ``there`` is
    what eager PyTorch gives on the backend's ``device``, where that is asked for. ``calls`` is how many results of the
    case are judged in all. ``arithmetic`` has what the device does otherwise than IEEE arithmetic.
    """

    case: Case
    trial: Inputs
    member: Op
    op: Any
    eager: tuple[Any, ...]
    results: Sequence[Any]
    calls: int
    device: str
    there: tuple[Any, ...]
    arithmetic: Arithmetic = IEEE

    @cached_property
    def named(self) -> Mapping[str, Any]:
        """The arguments by parameter name."""
        return bind(Call(self.op, tuple(self.trial.args), dict(self.trial.kwargs), ()))

    def verdict(self, oracle: str, sentence: str) -> Verdict:
        """``fail`` where there is a sentence, else ``pass``."""
        return Verdict(self.case.id, "fail" if sentence else "pass", oracle, sentence)


@dataclass(frozen=True)
class Oracle:
    """``check`` decides about calls to which it ``applies``."""

    applies: Callable[[JudgedCall], bool]
    check: Callable[[JudgedCall], Verdict]


@dataclass(frozen=True)
class Refinement:
    """What is asked of results that are within their bounds, by the oracle that found them so: ``breach`` is a sentence
    on what is wrong with them all the same, or nothing.
    """

    applies: Callable[[JudgedCall, Expected], bool]
    violation: Callable[[JudgedCall, Expected], str]


def judge(
    case: Case,
    inputs: Inputs,
    results: Sequence[Any],
    *,
    calls: int = 1,
    types: Sequence[TensorType | None] = (),
    device: str = HOST,
    there: Sequence[Any] = (),
    arithmetic: Arithmetic = IEEE,
) -> Verdict:
    """Returns the verdict on the flat ``results`` that a backend returned for the inputs. Checks the contract, then
    asks the first of ``ORACLES`` that applies.

    ``calls`` is the number of results of the case that are judged; the probability of a false alarm is divided among
    them. The results were computed on ``device`` and copied to the host. ``types`` are the types that PyTorch's results
    have on that device, where known. A result whose dtype or size differs there is held to its type alone: it is saved
    for a backward pass. ``there`` are eager PyTorch's results on the device, copied to the host. If they are as far off
    as the backend's, the backend is excused, as it is by eager's results on the host. ``arithmetic`` is what the
    backend declares; see ``judge_by_facts``.
    """
    member, op = MEMBERS[case.op], target_of(case.op, case.overload)
    if case.kind == "negative":
        return Verdict(case.id, "fail", "contract", "A precondition is broken, and there is a result and no error.")
    try:
        eager = flat(device_differences.kernel(op, member.name, device)(*inputs.args, **inputs.kwargs))
    except Exception as raised:
        return _without_reference(case, raised, device)
    expected_results = metadata.as_types(eager, types)
    if (fault := metadata.violation(member, results, expected_results, device_of(inputs))) is not None:
        return Verdict(case.id, "fail", "contract", fault.sentence, figures=fault.figures)
    saved = device_differences.backward_only_results(member.name, device)
    results = [
        got if metadata.same_type(want, eager_result) and k not in saved else eager_result
        for k, (got, want, eager_result) in enumerate(zip(results, expected_results, eager, strict=True))
    ]
    call = JudgedCall(case, inputs, member, op, eager, results, calls, device, tuple(there), arithmetic)
    return next(oracle for oracle in ORACLES if oracle.applies(call)).check(call)


def _without_reference(case: Case, raised: Exception, device: str) -> Verdict:
    error = f"{type(raised).__name__}: {str(raised).partition(chr(10))[0]}"
    # A backend, or PyTorch on its device, may do more, but nobody says what is right.
    if isinstance(raised, NotImplementedError) or device != HOST:
        return Verdict(
            case.id, "not run", "contract", f"PyTorch {torch.__version__} itself does not do this call. {error}"
        )
    return Verdict(case.id, "harness error", "contract", f"Eager PyTorch has no result: {error}")


# -- the oracles, in order ---------------------------------------------------------------------------------------------


def _is_uninitialized(call: JudgedCall) -> bool:
    return call.member.numerics.results is Results.UNINITIALIZED


def _is_drawn(call: JudgedCall) -> bool:
    if "random" not in call.member.tags:
        return False
    from . import distribution_tests  # when a case first draws, for scipy.stats takes half a second

    return distribution_tests.is_drawn(call.member.name, call.named)


def _by_statistics(call: JudgedCall) -> Verdict:
    from . import distribution_tests

    return call.verdict(
        "statistical", distribution_tests.violation(call.member.name, call.named, call.results, call.calls)
    )


def _property(call: JudgedCall) -> Callable[..., str] | None:
    name = call.member.name
    return sorting_properties.property_of(name, call.named) or linalg_properties.promise.declared.get(name)


def _by_property(call: JudgedCall) -> Verdict:
    holds = _property(call)
    assert holds is not None
    unknown = linalg_properties.unknown(call.member.name, call.trial.args, call.results, call.eager)
    return call.verdict("metamorphic", unknown or holds(call.named, call.results, call.eager))


def _by_numbers(call: JudgedCall) -> Verdict:
    """By the strictest of ``exact``, ``ulp``, ``dot``, ``composite`` and ``times`` that reaches it."""
    with device_differences.device_decomposition(call.member.name, call.device):
        expected = expected_of(call.member, call.op, call.trial, call.eager, call.arithmetic)
        expected = replace(expected, there=call.there)
    verdict = _verdict(call.case, call.trial, call.results, expected, call.op)
    if verdict.status != "pass":
        return verdict
    for refinement in REFINEMENTS:
        if refinement.applies(call, expected) and (sentence := refinement.violation(call, expected)):
            return replace(verdict, status="fail", sentence=sentence)
    if expected.oracle == "dot" and "exact" in call.trial.notes and not verdict.figures.get("ratio"):
        return replace(verdict, oracle="exact by construction")
    return verdict


ORACLES = (
    Oracle(_is_uninitialized, lambda call: call.verdict("contract", "")),
    Oracle(_is_drawn, _by_statistics),
    Oracle(lambda call: _property(call) is not None, _by_property),
    Oracle(lambda call: True, _by_numbers),
)
"""The first that applies decides."""


def _is_random_sum(call: JudgedCall, expected: Expected) -> bool:
    return (
        expected.oracle == "dot"
        and call.case.levels.get("values") == "random"
        and call.member.numerics.results is Results.SUMS
        and REDRAWN not in call.trial.notes
    )


def _bias_of_sums(call: JudgedCall, expected: Expected) -> str:
    inputs = call.trial
    context = CallContext(call.op, call.member, inputs.args, inputs.kwargs, call.eager, call.arithmetic)
    if dot_products.bits_of_operands(context) is not None:
        return dot_products.cut_statistics(context, call.results[0])
    return dot_products.statistics(context, call.results[0])


def _is_by_elements(call: JudgedCall, expected: Expected) -> bool:
    return expected.oracle == "ulp" and expected.tracked is not None and isinstance(call.results[0], Tensor)


def _one_sided(call: JudgedCall, expected: Expected) -> str:
    assert expected.tracked is not None
    return rounding_bias.one_sided(call.member, call.trial.args, call.results[0], expected.tracked[0])


REFINEMENTS = (
    Refinement(
        lambda call, expected: call.member.name in histogram_totals.breach.declared,
        lambda call, expected: histogram_totals.breach.declared[call.member.name](call.named, call.results[0]),
    ),
    Refinement(_is_random_sum, _bias_of_sums),
    Refinement(_is_by_elements, _one_sided),
)


def judge_independence(case: Case, inputs: Sequence[Inputs], results: Sequence[Sequence[Any]]) -> str:
    """What is wrong with two calls of a case in which each by itself is right; nothing, of members that do not draw."""
    member, op = MEMBERS[case.op], target_of(case.op, case.overload)
    if "random" not in member.tags:
        return ""
    named = [bind(Call(op, tuple(t.args), dict(t.kwargs), ())) for t in inputs]
    from . import distribution_tests

    return distribution_tests.independent(member.name, named, results)


def _verdict(case: Case, inputs: Inputs, results: Sequence[Any], expected: Expected, op: Any) -> Verdict:
    worst: dict[str, Any] = {}
    unknown, vacuous, excused = 0.0, False, ""
    for k, (got, want) in enumerate(zip(results, expected.eager, strict=True)):
        result = _compare(got, want, expected, k, inputs, op)
        if result.sentence:
            sentence = result.sentence + operands(expected.member, inputs, got, result.figures)
            sentence = f"Result {k}: {sentence}" if len(results) > 1 else sentence
            if not result.excused:
                return Verdict(case.id, "fail", expected.oracle, sentence, figures={**result.figures, "result": k})
            excused = excused or f"{sentence} Eager PyTorch is as far off."
        vacuous |= result.vacuous
        unknown = max(unknown, result.figures.get("masked", 0.0))
        if result.figures.get("ratio", 0.0) >= worst.get("ratio", -1.0):
            worst = dict(result.figures)
    if excused:
        return Verdict(case.id, "quality warning", expected.oracle, excused, figures=worst)
    if vacuous and (worst.get("masked", 1.0) == 1.0 or not extreme(inputs)):
        return Verdict(
            case.id,
            "vacuous",
            expected.oracle,
            f"Of {unknown:.1%} of the elements nothing is known: any values pass there.",
            figures=worst,
        )
    return Verdict(case.id, "pass", expected.oracle, figures=worst)


def operands(member: Op, inputs: Inputs, got: Any, figures: Mapping[str, Any]) -> str:
    """What stands in the operands where a result is worst, of members that are computed by elements; '' of others."""
    at, alone = figures.get("index"), [x for x in (*inputs.args, *inputs.kwargs.values()) if isinstance(x, Tensor)]
    if at is None or "pointwise" not in member.tags or not alone or len(alone) < len(inputs.tensors):
        return ""
    try:
        there = [x.expand(got.shape)[tuple(at)].item() for x in alone]
    except RuntimeError:  # other sizes: not of one element each
        return ""
    subject = "operand is" if len(there) == 1 else "operands are"
    return f" There the {subject} {' and '.join(map(repr, there))}."


def _compare(got: Any, want: Any, expected: Expected, k: int, inputs: Inputs, op: Any) -> Finding:
    if not isinstance(want, Tensor):
        same = got == want or (got != got and want != want)
        return Finding() if same else Finding(f"It is {got!r}, not {want!r}.")
    if expected.tracked is None:
        call = Call(op, tuple(inputs.args), dict(inputs.kwargs), ())
        return relative_to_eager.compare(
            got,
            want,
            result_of(op, inputs, k, widened),
            narrow_result(op, inputs, k, want),
            floor=relative_to_eager.error_floor(expected.member.name, bind(call)),
        )
    flushes = inexact(want.dtype) and want.dtype.to_real() in expected.arithmetic.flushes_subnormals
    zeros = not flushes and zero_signs.differ(expected.member, got, want)
    zeros = zeros and zero_signs.are_decided(expected.member, op, inputs)
    eager = [
        x
        for x in (want, *expected.there[k : k + 1])
        if isinstance(x, Tensor) and (x.dtype, x.shape) == (want.dtype, want.shape)
    ]
    result = compare(got, expected.tracked[k], eager, zeros=zeros, flushes=flushes)
    if result.sentence and not result.excused and "pointwise" in expected.member.tags:
        result = compare(
            got, expected.tracked[k], [*eager, *eager_variants(op, inputs, k, want)], zeros=zeros, flushes=flushes
        )
    return result


def expected_of(member: Op, op: Any, inputs: Inputs, eager: tuple[Any, ...], arithmetic: Arithmetic = IEEE) -> Expected:
    """The references and bounds of a call, by the strictest oracle that reaches it."""
    if exact(member, eager):
        named = bind(Call(op, tuple(inputs.args), dict(inputs.kwargs), ()))
        free = unspecified.unspecified_elements(member, named, eager)
        return Expected(member, eager, tuple(map(_left_open, eager, free)), "exact", arithmetic=arithmetic)
    evaluate: Evaluate = partial(analyze, arithmetic=arithmetic)

    def follow(x: Any) -> Any:
        return tracked(x, evaluate) if isinstance(x, Tensor) else x

    try:
        result = flat(evaluate(op, tree_map(tuple(inputs.args), follow), tree_map(dict(inputs.kwargs), follow)))
    except (NoRule, NotImplementedError, RuntimeError, TypeError, ValueError):
        return Expected(member, eager, None, "times")
    if len(result) != len(eager) or not all(map(_followed, result, eager)):
        return Expected(member, eager, None, "times")
    if member.kind == "composite":  # of primitives it is known wherever they stand
        free = unspecified.unspecified_elements(
            member, bind(Call(op, tuple(inputs.args), dict(inputs.kwargs), ())), eager
        )
        result = tuple(map(_left_open, result, free))
    return Expected(member, eager, result, _oracle(member), arithmetic=arithmetic)


def _left_open(want: Any, free: Tensor | None) -> Any:
    """``want``, exact or tracked, of whose ``free`` elements nothing is known."""
    if free is None or not bool(free.any()):
        return want
    if not isinstance(want, Tracked):
        return tracked(want, analyze, None, torch.where(free, float("inf"), 0.0))
    return tracked(want.plain, analyze, want.value, torch.where(free, float("inf"), errors(want)))


def exact(member: Op, eager: Sequence[Any]) -> bool:
    """Whether eager's results are the only right ones: nothing is rounded."""
    if member.kind != "primitive":
        return False
    if all(not isinstance(o, Tensor) or not inexact(o.dtype) for o in eager):
        return True
    return bool(member.budget) and all(b.ulps == 0 for b in member.budget.values())


def _followed(result: Any, eager: Any) -> bool:
    """Whether a float result of a composite is tracked to where it comes from, if it has elements, and has the type of
    eager's.
    """
    if not isinstance(eager, Tensor):
        return True
    right = isinstance(result, Tensor) and (result.dtype, result.shape) == (eager.dtype, eager.shape)
    return right and (isinstance(result, Tracked) or not inexact(eager.dtype) or not eager.numel())


def _oracle(member: Op) -> str:
    if member.kind == "composite":
        return "composite"
    return "ulp" if "pointwise" in member.tags else "dot"


def narrow_result(op: Callable[..., Any], inputs: Inputs, k: int, want: Tensor) -> Tensor | None:
    """For a float64 result, which has no better reference: the result that the arguments have in float32."""
    if want.dtype not in (torch.float64, torch.complex128):
        return None
    result = result_of(op, inputs, k, narrowed)
    return result if result is not None and result.shape == want.shape else None


def extreme(inputs: Inputs) -> bool:
    """Whether arguments have elements at the ends of the range, of whose results clauses leave more open."""
    for x in inputs.tensors:
        if inexact(x.dtype):
            facts, size = torch.finfo(x.dtype), x.abs().to(torch.float64)
            if bool((~size.isfinite() | (size >= facts.max**0.5) | ((size > 0) & (size < facts.eps**2))).any()):
                return True
        elif x.dtype != torch.bool and x.numel():
            ends = torch.iinfo(x.dtype)
            if bool(((x >= ends.max - 1) | (x <= ends.min + 1)).any()) and ends.bits > 8:
                return True
    return False


def device_of(inputs: Inputs) -> torch.device:
    """That of the arguments; the processor's where there is no tensor."""
    return next((x.device for x in inputs.tensors), torch.device("cpu"))


@cache
def _targets(name: str) -> Mapping[str, Any]:
    return {str(t): t for t in MEMBERS[name].targets}


def target_of(name: str, overload: str) -> Any:
    """The overload of a member by its full name; the normal form where none is given. Raises KeyError if this PyTorch
    has it not.
    """
    result = _targets(name)
    return result[overload] if overload else next(iter(result.values()))
