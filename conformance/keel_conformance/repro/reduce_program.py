"""A contract program that fails, reduced to the part of it that the backend compiled and got wrong, as a script.

What a backend is given of a program are functional graphs, and their arguments at each call. The first that gives
something else than eager PyTorch is the failure; it is cut down over its nodes, those before which become arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

import keel
from keel import KeelError
from keel.minify import Deadline, assemble, greedy_descent, tensor, text_of
from keel.plugin import CompileContext
from keel.testing import compile_part

from ..cases.case import Case
from ..devices import HOST
from ..harness.backend_under_test import load_backend
from ..harness.red_zones import same_bits
from ..oracles.error_rules import NoRule
from ..oracles.graph import graph_bounds
from ..programs import PROGRAMS
from ..programs import run_case as perform_program
from ..programs.observation import same
from ..programs.restricted_compiler import Compiler
from ..programs.states import NAMES
from ..results.verdict import Verdict
from . import script
from .reduce_sequence import of_sequence
from .replay import ReplayPool
from .whole_program import write_whole
from .written_script import Written, name_of

Line = tuple[str, str, tuple[str, ...]]
"""A name, the expression that it stands for, and the names in that."""


_DEVICE = re.compile(r"torch\.device\('[^']*'\)")


@dataclass(frozen=True)
class Part:
    """A graph as lines of Python. ``calls`` has the values of all names at each call, as eager PyTorch has them, on the
    host.
    """

    subject: str
    exact: bool
    params: tuple[str, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    calls: tuple[dict[str, Any], ...]

    @property
    def text(self) -> list[str]:
        return [
            f"def program({', '.join(self.params)}):",
            *(f"    {n} = {expr}" for n, expr, _ in self.lines),
            f"    return ({', '.join(self.outputs)},)",
        ]

    @property
    def on_host(self) -> Part:
        """The same where all tensors are on the host."""
        return replace(self, lines=tuple((n, _DEVICE.sub(f"torch.device('{HOST}')", e), of) for n, e, of in self.lines))


def record_failing_part(backend_and_case: tuple[str, Case]) -> Part | None:
    """Runs a case's program on what the text names, and gives the first part that went wrong; None if none did."""
    text, case = backend_and_case
    backend, wrong = load_backend(text).backend, list[Part]()

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        run, calls = compile_part(backend, gm, ctx), list[tuple[Any, ...]]()

        def call(*inputs: Any) -> Any:
            before = tuple(_copy(x) for x in inputs)
            calls.append(before)
            try:
                result = run(*inputs)
            except Exception:
                wrong.append(_part(gm, text, case, calls[-1:]))
                raise
            want = gm.forward(*map(_copy, before))
            if _differ(result, want, PROGRAMS[case.op].exact) or not all(map(same_bits, inputs, before)):
                wrong.append(_part(gm, text, case, calls))
            return result

        return call

    perform_program(case, Compiler(replace(backend, compile=compile)))
    return wrong[0] if wrong else None


def _copy(x: Any, device: str | None = None) -> Any:
    """A copy, on ``device`` if that is given."""
    return x.detach().to(device or x.device, copy=True) if isinstance(x, Tensor) else x


def _differ(results: Sequence[Any], want: Sequence[Any], exact: bool) -> bool:
    """Whether results are suspicious; what rounds is held to its bound later."""

    def differs(x: Any, y: Any) -> bool:
        if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
            return bool(x != y)
        return x.dtype != y.dtype or x.shape != y.shape or not same(x, y)

    return any(map(differs, results, want))


def _part(gm: fx.GraphModule, text: str, case: Case, calls: Sequence[tuple[Any, ...]]) -> Part:
    """The graph as lines.  Raises ValueError for one that has no such text."""
    params, lines, outputs = list[str](), list[Line](), list[str]()
    for node in gm.graph.nodes:
        if node.op != "output":
            _checked(node.name)
        match node.op:
            case "placeholder":
                params.append(node.name)
            case "call_function":
                lines.append((node.name, _expression(node), tuple(n.name for n in node.all_input_nodes)))
            case "output":
                outputs = [x.name for x in node.args[0] if isinstance(x, fx.Node)]
            case _:
                raise ValueError(f"A graph with {node.op} has no text.")
    values = [_values(gm, inputs) for inputs in calls[-3:]]
    return Part(text, PROGRAMS[case.op].exact, tuple(params), tuple(lines), tuple(outputs), tuple(values))


_OPERATOR = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}", re.ASCII)


def _checked(name: str) -> str:
    """A name that comes to stand in the text, which is run: an identifier, and none that the text has already.  Raises
    ValueError.
    """
    if not (name.isidentifier() and name.isascii()) or iskeyword(name) or name in ("torch", "inf", "nan", "program"):
        raise ValueError(f"{name!r} cannot be used as a name in a script.")
    return name


def _expression(node: fx.Node) -> str:
    def text(x: Any) -> str:
        match x:
            case fx.Node():
                return x.name
            case list() | tuple():
                inside = ", ".join(map(text, x))
                return f"[{inside}]" if isinstance(x, list) else f"({inside}{',' if len(x) == 1 else ''})"
        return text_of(x)

    if node.target is getitem:
        return f"{text(node.args[0])}[{text(node.args[1])}]"
    if not isinstance(node.target, type(torch.ops.aten.add.Tensor)) or not _OPERATOR.fullmatch(str(node.target)):
        raise ValueError(f"{node.target} has no text.")
    words = [*map(text, node.args), *(f"{_checked(k)}={text(v)}" for k, v in node.kwargs.items())]
    return f"torch.ops.{node.target}({', '.join(words)})"


def _values(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, Any]:
    """The value of each node."""
    results: dict[str, Any] = {}

    class Keeper(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            if isinstance(value, Tensor | int | float | bool):
                results[n.name] = _copy(value, HOST)
            return value

    with torch.no_grad():
        Keeper(gm).run(*map(_copy, inputs))
    return results


def build_function(part: Part) -> Callable[..., Any]:
    """The part as a function.  Its text is of checked names and of literals: ``_part`` makes no other."""
    space: dict[str, Any] = {"torch": torch, "inf": float("inf"), "nan": float("nan")}
    exec("\n".join(part.text), space)  # Dynamo wants a function with a code of its own
    return space["program"]  # type: ignore[no-any-return]


def replay(part: Part) -> tuple[str, int]:
    """How the part fails ('' if it does not), and which result is wrong."""
    torch.compiler.reset()
    program, under_test = build_function(part.on_host), load_backend(part.subject)
    try:
        want = [program(*(_copy(c[p]) for p in part.params)) for c in part.calls]
    except Exception:
        return "harness error", 0
    failures = []
    try:
        go = keel.compile(build_function(part), backends=under_test.with_eager, strict=True)
        with torch.no_grad():
            for call in part.calls:
                inputs = [_copy(call[p], under_test.device) for p in part.params]
                failures.append([_copy(x, HOST) for x in go(*inputs)])
                if not all(same_bits(_copy(x, HOST), call[p]) for x, p in zip(inputs, part.params, strict=True)):
                    return "writes", 0
    except Exception as e:
        return ("harness error" if isinstance(e, KeelError) and e.code == "bad-graph" else "raises"), 0
    for call, have, best in zip(part.calls, failures, want, strict=True):
        for k, (x, y) in enumerate(zip(have, best, strict=True)):
            if isinstance(y, Tensor) and (x.dtype, x.shape) != (y.dtype, y.shape):
                return "type", k
            if _differ([x], [y], part.exact) and not _allowed(part, program, call, k, x):
                return "values", k
    return "", 0


def bound_of(part: Part, call: dict[str, Any], k: int) -> tuple[Tensor, Tensor] | None:
    """The reference and the bound of a result that may be rounded; None for an exact one."""
    if part.exact or not all(isinstance(call[p], Tensor) for p in part.params):
        return None
    try:
        bounded = graph_bounds(fx.symbolic_trace(build_function(part.on_host)), [_copy(call[p]) for p in part.params])[
            k
        ]
    except (NoRule, RuntimeError):
        return None
    return None if bounded is None else (bounded.reference, torch.where(bounded.mask, torch.inf, bounded.bound))


def _allowed(part: Part, program: Callable[..., Any], call: dict[str, Any], k: int, have: Any) -> bool:
    limits = bound_of(part, call, k)
    if limits is None or not isinstance(have, Tensor) or not have.is_floating_point():
        return False
    reference, bound = limits
    return bool(
        (
            ((have.double() - reference).abs() <= bound)
            | (have.isnan() & reference.isnan())
            | (have.double() == reference)
        ).all()
    )


# -- smaller -----------------------------------------------------------------------------------------------------------


def prune(part: Part) -> Part:
    """The part without lines and parameters that no output needs."""
    names = set(part.outputs)
    for name, _, uses in reversed(part.lines):
        if name in names:
            names |= set(uses)
    return replace(
        part,
        params=tuple(p for p in part.params if p in names),
        lines=tuple(line for line in part.lines if line[0] in names),
    )


def smaller(part: Part) -> Iterator[Part]:
    """One call; one output, if need be a node before it; each line made a parameter."""
    for k in range(len(part.calls) - 1, -1, -1):
        if len(part.calls) > 1:
            yield replace(part, calls=part.calls[k : k + 1])
    for name in part.outputs if len(part.outputs) > 1 else ():
        yield prune(replace(part, outputs=(name,)))
    for name, _, _ in part.lines[:-1]:
        if name not in part.outputs and all(isinstance(c.get(name), Tensor) for c in part.calls):
            yield prune(replace(part, outputs=(name,)))
    for k in range(len(part.lines) - 2, -1, -1):
        name = part.lines[k][0]
        if name not in part.outputs and all(isinstance(c.get(name), Tensor) for c in part.calls):
            yield prune(replace(part, params=(*part.params, name), lines=part.lines[:k] + part.lines[k + 1 :]))


# -- the script --------------------------------------------------------------------------------------------------------


def of(part: Part, verdict: Verdict, kind: str, which: int) -> str:
    """The script of a part."""
    backend, device = script.backend_of(part.subject), load_backend(part.subject).device
    last = part.calls[-1]
    calls = [text_of(tuple(c[p] for p in part.params), device=device) for c in part.calls]
    body = [
        *part.text,
        "",
        *(f"args{k} = {text}" for k, text in enumerate(calls)),
        f"run = keel.compile(program, backends={backend.backends}, strict=True)",
    ]
    if kind == "writes":
        body += [
            "before = [x.clone() for x in args0]",
            "run(*args0)",
            'print("expected arguments as before", before, "found", args0)',
            "sys.exit(not all(torch.equal(a, b) for a, b in zip(args0, before)))",
        ]
        return assemble(script.title(verdict, part.subject), backend.imports, body)
    body += [f"found = run(*args{k})" for k in range(len(calls))]
    if kind in ("raises", "died"):
        body += ['print("expected no exception, and found none")']
        return assemble(script.title(verdict, part.subject), backend.imports, body)
    want = build_function(part.on_host)(*(_copy(last[p]) for p in part.params))[which]
    body += [f"found = found[{which}]{'.cpu()' if isinstance(want, Tensor) else ''}"]
    bounded = bound_of(part, last, which)
    if bounded is not None and want.is_floating_point():
        body += [
            f"expected = {tensor(bounded[0], strides=False)}",
            f"bound = {tensor(bounded[1], strides=False)}",
            'print("expected", expected, "found", found, "allowed error", bound)',
            "near = ((found.double() - expected).abs() <= bound) | (found.double() == expected)",
            "sys.exit(not bool((near | (found.isnan() & expected.isnan())).all()))",
        ]
    else:
        body += [
            f"expected = {text_of(want)}",
            'print("expected", expected, "found", found)',
            "sys.exit(found.dtype != expected.dtype or found.shape != expected.shape or not torch.equal("
            "found.nan_to_num(7), expected.nan_to_num(7)))",
        ]
    return assemble(script.title(verdict, part.subject), backend.imports, body)


def of_program(
    folder: Path, subject: str, case: Case, v: Verdict, bench: ReplayPool, deadline: Deadline, *, trying: bool = True
) -> Written:
    """The script of a failing contract program."""
    if not trying:
        return Written(case.id, lacking="There was no time left to see which part of the program is wrong.")
    if case.family == "collectives":
        return Written(
            case.id,
            lacking=f"It takes two processes, which a script is not: keel conform --op {case.op} shows the failure.",
        )
    if case.op in NAMES:
        return of_sequence(folder, subject, case, v, bench, deadline)
    part = bench.value(record_failing_part, (subject, case))
    if part is None:
        path = write_whole(folder, subject, case, v)
        if bench.status(str(path)) == 1:
            return Written(case.id, name_of(case), shown=True)
        path.unlink()
        return Written(
            case.id,
            lacking="No part that the backend compiled gives anything else than eager PyTorch by "
            f"itself, nor does the program alone; keel conform --op {case.op} shows the failure.",
        )

    def kind_of(one: Part) -> tuple[str, int]:
        return bench.value(replay, one) or ("died", 0)

    part = prune(part)
    kind, which = kind_of(part)
    size = len(part.lines)
    if kind not in ("", "harness error"):
        part = greedy_descent(part, smaller, lambda one: kind_of(one)[0] == kind, deadline)
        kind, which = kind_of(part)
    path = folder / name_of(case)
    path.write_text(of(part, v, kind, which), encoding="utf-8")
    return Written(case.id, name_of(case), bench.status(str(path)) == 1, len(part.lines) < size)
