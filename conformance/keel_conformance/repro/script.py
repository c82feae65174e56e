"""A failing call as a script of at most forty lines that needs torch and the backend alone; exits with 1 if it fails.

The expectation is computed here, by the oracles, and stands in the script as numbers with the error that is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor

from keel.minify import assemble, on, tensor, text_of
from keel.opset import MEMBERS
from keel.testing import claims_of

from ..cases.case import Inputs
from ..harness.backend_under_test import GROUP, load_backend
from ..harness.backend_worker import overload, with_device_kwarg
from ..oracles import zero_signs
from ..oracles.compare import TIMES
from ..oracles.error_rules import flat, widened
from ..oracles.judge import expected_of, narrow_result
from ..oracles.relative_to_eager import eager_error
from ..oracles.tracked_tensor import error_of, inexact, overflow, ulp, wide
from ..pytree import tree_map
from ..results.fault import WRITTEN
from ..results.verdict import Verdict
from .replay import FailingCalls

ZONE = 64
"""Elements of memory beside an argument, in scripts that show that they are written to."""
CHILD = ("crash", "timeout", "resource")
"""With these ends a script has its call made by a process of its own."""


@dataclass(frozen=True)
class Backend:
    """How a script gets at the backend: the lines that import it, and the expression for the list of backends."""

    imports: tuple[str, ...]
    backends: str
    single: str


def backend_of(text: str) -> Backend:
    """That of what ``subject`` finds by the text."""
    last = load_backend(text).backend.last_resort

    def listed(single: str) -> str:
        return f"[{single}]" if last else f'[{single}, "eager"]'

    if ":" in text:
        module, _, path = text.partition(":")
        first, _, rest = path.partition(".")
        name = f"backend.{rest}" if rest else "backend"
        return Backend((f"from {module} import {first} as backend",), listed(name), name)
    if text in claims_of(GROUP):
        return Backend((), listed(f'"{text}"'), f'"{text}"')
    return Backend(("from keel_foreign import foreign",), listed(f'foreign("{text}")'), f'foreign("{text}")')


def title(verdict: Verdict, subject: str) -> str:
    """Returns the first line of a script: which backend fails at which case, and how."""
    sentence = " ".join(filter(None, [verdict.sentence, verdict.clause and f"[{verdict.clause}]"]))
    line = f"{subject}: {verdict.status} at {verdict.case}. {shorten(sentence, 300)}"
    return '"""' + line.replace("\\", "/").replace('"""', "'''") + ' """'


def of_calls(calls: FailingCalls, verdict: Verdict, *, plain: bool = False) -> str:
    """Returns the script of one or more calls of one operator. ``plain`` passes a backend of torch.compile to
    ``torch.compile`` directly, without Keel.  Raises ValueError if an argument cannot be written as text.
    """
    backend, device = backend_of(calls.subject), load_backend(calls.subject).device
    names, lines = _arguments(calls, device, zone=_writes(verdict))
    inputs = [text_of((tuple(t.args), dict(with_device_kwarg(device, calls.case, t))), names) for t in calls.inputs]
    lines += [f"calls = [{', '.join(inputs)}]"]
    imports = list(backend.imports)
    op = f"torch.ops.{calls.case.overload}"
    if plain:
        imports = []
        run, made = f'run = torch.compile({op}, backend="{calls.subject}", dynamic=False)', "run(*args, **kwargs)"
    else:
        run = f"batch = keel.testing.compile_calls([({op}, *calls[0])], backends={backend.backends}, strict=True)"
        made = "batch.run([(args, kwargs)])[0]"
    expected = _checks(calls, verdict, made, plain)
    body = [*lines, run, *expected]
    if verdict.status in CHILD:
        imports += ["import os", "import subprocess"]
        limit = 30 if verdict.status == "timeout" else 300
        body = [
            'if sys.argv[1:] != ["here"]:',
            '    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}',
            f'    done = subprocess.run([sys.executable, __file__, "here"], timeout={limit}, env=path)',
            '    print("expected an exit status of 0, found", done.returncode)',
            "    sys.exit(done.returncode != 0)",
            *body,
        ]
    return assemble(title(verdict, calls.subject), imports, body)


def _writes(v: Verdict) -> bool:
    return v.status == "fail" and v.oracle == "contract" and v.figures.get("fault") in WRITTEN


def _arguments(calls: FailingCalls, device: str, *, zone: bool) -> tuple[dict[int, str], list[str]]:
    """A name and a line for each tensor of the arguments. With ``zone`` they lie in the middle of larger memory."""
    names: dict[int, str] = {}
    recipes, lines = dict(calls.recipes), list[str]()
    for k, inputs in enumerate(calls.inputs):
        for n, x in enumerate(inputs.tensors):
            if id(x) in names:
                continue
            names[id(x)] = f"x{len(names)}"
            text = recipes[k, n] + on(device) if (k, n) in recipes else tensor(x, device=device)
            lines.append(f"{names[id(x)]} = {text}")
            if zone and x.numel():
                lines[-1] = f"{names[id(x)]} = within({text})"
    return names, [*(_WITHIN if zone else ()), *lines]


_WITHIN = (
    "def within(x):",
    "    n = x.untyped_storage().nbytes() // x.itemsize - x.storage_offset()",
    f"    memory = torch.zeros(n + {2 * ZONE}, dtype=x.dtype, device=x.device)",
    f"    memory[{ZONE}:{ZONE} + n] = x.as_strided((n,), (1,))",
    f"    return memory.as_strided(x.shape, x.stride(), {ZONE})",
    "",
    "def memory_of(x):",
    "    whole = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())",
    '    return whole.to("cpu", copy=True)',
    "",
)


# -- what is checked ---------------------------------------------------------------------------------------------------


def _checks(calls: FailingCalls, v: Verdict, made: str, plain: bool) -> list[str]:
    if plain:
        made = f"[r for r in torch.utils._pytree.tree_leaves({made})]" if _several(calls) else f"[{made}]"
    run = ["for args, kwargs in calls:", f"    found = {made}"]
    if calls.case.kind == "negative":
        return [
            "try:",
            *(f"    {line}" for line in run),
            "except Exception as e:",
            '    sys.exit(print("as expected, it raised", type(e).__name__))',
            'print("expected an exception, found", found)',
            "sys.exit(1)",
        ]
    if v.status in CHILD or v.oracle == "raises":
        return [*run, 'print("expected no exception, and found none")']
    if v.oracle == "repeat":
        return [
            f'found = [[r.to("cpu", copy=True) for r in {made}] for args, kwargs in calls]',
            'print("expected the same bits from the same call, found", *found, sep="\\n")',
            "same = [torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten()"
            ".view(torch.uint8)) for a, b in zip(found[0], found[-1])]",
            "sys.exit(not all(same))",
        ]
    if v.oracle == "contract":
        return _contract(calls, v, made, run)
    return [*run, *_values(calls, v)]


def _several(calls: FailingCalls) -> bool:
    t = calls.inputs[0]
    return not isinstance(overload(calls.case.overload)(*t.args, **t.kwargs), Tensor)


_ARGUMENTS_OF_CALL = (
    "given = [x for name, x in sorted(globals().items()) if name[0] == 'x' and isinstance(x, torch.Tensor)]"
)


def _contract(calls: FailingCalls, v: Verdict, made: str, run: list[str]) -> list[str]:
    fault = v.figures.get("fault")
    if fault in WRITTEN:
        return [
            _ARGUMENTS_OF_CALL,
            "before = [memory_of(x) for x in given]",
            *run,
            "after = [memory_of(x) for x in given]",
            'print("expected arguments and their surroundings as they were, found", *map(sum, [a != b for a, b in '
            'zip(after, before)]), "bytes changed")',
            "sys.exit(not all(map(torch.equal, before, after)))",
        ]
    if fault == "result changed":
        return [
            f"results = [{made} for args, kwargs in calls[:1]]",
            'before = [r.to("cpu", copy=True) for r in results[0]]',
            f"for args, kwargs in calls[1:]:\n    results.append({made})",
            "found = [r.cpu() for r in results[0]]",
            'print("expected", *before, "found", *found)',
            "sys.exit(not all(map(torch.equal, before, found)))",
        ]
    if fault == "result shared" and "other" in v.figures:
        n, k, m, j = v.result, v.call, v.figures["other"], v.figures.get("other_call", v.call)
        return [
            f"results = [{made} for args, kwargs in calls]",
            f"one, other = results[{k}][{n}], results[{j}][{m}]",
            "shared = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()",
            'print("expected results in memory of their own, found that they share it:", shared)',
            "sys.exit(shared)",
        ]
    if fault in ("argument shared", "result shared"):
        return [
            *run,
            _ARGUMENTS_OF_CALL,
            "shared = {x.untyped_storage().data_ptr() for x in given} & {r.untyped_storage().data_ptr() for r in "
            "found}",
            'print("expected results in memory of their own, found", len(shared), "that share it")',
            "sys.exit(len(shared))",
        ]
    inputs, op = calls.inputs[-1], overload(calls.case.overload)
    eager = flat(op(*inputs.args, **inputs.kwargs))
    which = "[r.stride() for r in found]" if fault == "strides" else "[(r.dtype, tuple(r.shape)) for r in found]"
    have = [r.stride() if fault == "strides" else (r.dtype, tuple(r.shape)) for r in eager]
    return [
        *run,
        f"expected = {text_of(have)}",
        f"found = {which}",
        'print("expected", expected, "found", found)',
        "sys.exit(found != expected)",
    ]


def _values(calls: FailingCalls, v: Verdict) -> list[str]:
    """The result that is wrong, held to the numbers of the oracle."""
    inputs, member = calls.inputs[-1], MEMBERS[calls.case.op]
    op = overload(calls.case.overload)
    eager = flat(op(*inputs.args, **inputs.kwargs))
    k = v.result
    want = eager[k]
    if not isinstance(want, Tensor):
        return [
            f"found, expected = found[{k}], {text_of(want)}",
            'print("expected", expected, "found", found)',
            "sys.exit(not (found == expected or found != found and expected != expected))",
        ]
    lines = [f"found = found[{k}].cpu()"]
    if v.oracle in ("metamorphic", "statistical"):
        return [
            *lines,
            f"expected = {tensor(want, strides=False)}",
            "# Eager PyTorch's; the operator's clauses allow others, but not what was found here.",
            'print("expected", expected, "found", found)',
            "sys.exit(not torch.equal(found, expected))",
        ]
    expected = expected_of(member, op, inputs, eager)
    if expected.tracked is None:
        return lines + _in_the_norm(op, inputs, k, want)
    reference, error = wide(expected.tracked[k]), error_of(expected.tracked[k])
    if not inexact(want.dtype):
        bound = torch.zeros(want.shape) if error is None else error
        return [
            *lines,
            f"expected = {tensor(reference.to(want.dtype), strides=False)}",
            f"bound = {_bound(bound)}",
            'print("expected", expected, "found", found, "allowed error", bound)',
            "right = (found == expected) | ((found.double() - expected.double()).abs() <= bound)",
            "sys.exit(not bool(right.all()))",
        ]
    if error is None:
        reference, error = want.to(reference.dtype), torch.zeros(want.shape, dtype=torch.float64)
    theirs = want.to(reference.dtype)  # the suite lets others be twice as far off as eager
    gap = torch.where((theirs == reference) | (theirs.isnan() & reference.isnan()), 0.0, (theirs - reference).abs())
    error = torch.where(gap > error, TIMES * gap, torch.where(gap.isnan(), torch.inf, error))
    near = reference.isfinite() & (reference.abs() + error >= overflow(want.dtype))
    error = torch.where(near & (reference.abs() < overflow(want.dtype)), torch.inf, error)
    signs = (
        " & ((expected != 0) | (found.signbit() == expected.signbit()))"
        if (zero_signs.are_decided(member, op, inputs) and not want.is_complex() and not bool(error.any()))
        else ""
    )
    return [
        *lines,
        f"expected = {tensor(reference, strides=False)}",
        f"bound = {_bound(error)}",
        'print("expected", expected, "found", found, "allowed error", bound)',
        "right = (found == expected.to(found.dtype)) | ((found.to(expected.dtype) - expected).abs() <= bound)",
        "right |= (found.isnan() & expected.isnan()) | torch.as_tensor(bound).isinf()",
        f"sys.exit(not bool((right{signs}).all()))",
    ]


def _bound(error: Tensor) -> str:
    first = error.flatten()[:1]
    if bool((error == first).all()):
        return repr(float(first))
    return tensor(error, strides=False)


def _in_the_norm(op: Any, inputs: Inputs, k: int, want: Tensor) -> list[str]:
    """The bound of operators that are held to eager's error against float64."""
    try:
        best = flat(op(*tree_map(tuple(inputs.args), widened), **tree_map(dict(inputs.kwargs), widened)))[k]
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        best = want
    if not inexact(want.dtype):
        return [
            f"expected = {tensor(want, strides=False)}",
            'print("expected", expected, "found", found)',
            "sys.exit(not torch.equal(found, expected))",
        ]
    best = best.to(torch.complex128 if want.is_complex() else torch.float64)

    def norm(x: Tensor) -> float:
        return float(x.abs().double().square().sum().sqrt())

    finite = want.isfinite() & best.isfinite()
    own = max(norm((want.to(best.dtype) - best)[finite]), eager_error(best, narrow_result(op, inputs, k, want), finite))
    least = norm(ulp(best[finite], want.dtype))
    return [
        f"expected = {tensor(best, strides=False)}",
        f"bound = {TIMES * max(own, least)!r}",
        "finite = expected.isfinite()",
        "off = (found.to(expected.dtype) - expected)[finite].abs().norm().item()",
        'print("expected", expected, "found", found, "off by", off, "allowed", bound)',
        "sys.exit(not off <= bound)",
    ]
