"""A drawn program that fails, cut down over its outputs, nodes, sizes and values, and as a script."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from keel.minify import Deadline, assemble, cut_where, cuts, ddmin, greedy_descent, tensor

from ..cases.case import Case
from ..devices import HOST
from ..graphs import graph_ir, program_of
from ..graphs.graph_ir import Input, Node, RandomGraph, module, pruned, random_inputs, run
from ..harness.backend_under_test import load_backend
from ..programs.compare_facts import disturbed_by, worst_of
from ..programs.monte_carlo import Noise
from ..programs.observation import Observation, same
from ..programs.restricted_compiler import Compiler
from ..results.verdict import Verdict
from . import script
from .replay import ReplayPool
from .written_script import Written, name_of

CALLS, NOISE = 3, 8


@dataclass(frozen=True)
class Graph:
    """A program on what ``subject`` names, called with each of ``calls``."""

    subject: str
    program: RandomGraph
    calls: tuple[tuple[Tensor, ...], ...]


def replay(graph: Graph) -> tuple[str, str, int]:
    """How it fails: the kind ('' if it does not), a sentence, and the result that is wrong."""
    torch.compiler.reset()
    try:
        expected = [run(graph.program, call) for call in graph.calls]
    except Exception as e:
        return "harness error", f"Eager PyTorch cannot run it: {e}", 0
    try:
        under_test = load_backend(graph.subject)
        go = Compiler(under_test.backend)(module(graph.program))
        failures = [
            tuple(x.detach().to(HOST, copy=True) for x in go(*(x.to(under_test.device, copy=True) for x in call)))
            for call in graph.calls
        ]
    except Exception as e:
        return f"raises {type(e).__name__}", f"It raised {type(e).__name__}: {str(e).strip()[:200]}", 0
    for call, (have, want) in enumerate(zip(failures, expected, strict=True)):
        for k, (x, y) in enumerate(zip(have, want, strict=True)):
            if (x.dtype, x.shape) != (y.dtype, y.shape):
                return "type", f"Result {k} is {x.dtype} {list(x.shape)}, not {y.dtype} {list(y.shape)}.", k
            if (graph.program.exact or not y.is_floating_point()) and not same(x, y):
                return "exact", f"Call {call}: result {k} differs from eager PyTorch's; nothing of it is rounded.", k
    if graph.program.exact:
        return "", "", 0
    worst = worst_of(_facts(failures), _facts(expected), _references(graph))
    if worst.ratio <= 1:
        return "", "", 0
    which = {_name(c, k): k for c, call in enumerate(failures) for k, _ in enumerate(call)}
    return "composite", worst.sentence, which[worst.value]


def _name(call: int, result: int) -> str:
    return f"call{call}.result[{result}] values"


def _facts(results: Sequence[Sequence[Tensor]]) -> Observation:
    return Observation(tuple((_name(c, k), "", x) for c, call in enumerate(results) for k, x in enumerate(call)))


def _references(graph: Graph) -> list[Observation]:
    """The float64 run and disturbed ones, by which a program that rounds is judged."""

    def wide() -> Observation:
        program = replace(
            graph.program,
            nodes=tuple(
                replace(n, attrs=tuple((k, "float64" if v == "float32" else v) for k, v in n.attrs))
                for n in graph.program.nodes
            ),
        )
        return _facts([run(program, [x.double() if x.is_floating_point() else x for x in c]) for c in graph.calls])

    return [wide(), *disturbed_by(lambda k: Noise(k, torch.finfo(torch.float32).eps / 2), NOISE, wide)]


# -- smaller -----------------------------------------------------------------------------------------------------------


def minimize(graph: Graph, fails: Callable[[Graph], bool], deadline: Deadline) -> Graph:
    """Fewer calls, outputs and nodes; then smaller sizes; then plainer values."""
    for call in graph.calls if len(graph.calls) > 1 else ():
        if fails(one := replace(graph, calls=(call,))):
            graph = one
            break
    original = graph
    outputs = ddmin(original.program.outputs, lambda some: bool(some) and fails(with_outputs(original, some)), deadline)
    graph = with_outputs(original, outputs) if outputs else original
    graph = greedy_descent(graph, fewer_nodes, fails, deadline)
    graph = greedy_descent(graph, smaller, fails, deadline)
    return plainer(graph, fails, deadline)


def with_outputs(graph: Graph, outputs: Sequence[int]) -> Graph:
    """The program with these outputs alone, without what they do not need."""
    full = replace(graph.program, outputs=tuple(outputs))
    needed = _needed(full)
    left = pruned(full)
    keep = [k for k in range(len(full.inputs)) if k in needed]
    return replace(graph, program=left, calls=tuple(tuple(c[k] for k in keep) for c in graph.calls))


def _needed(program: RandomGraph) -> set[int]:
    needed, first = set(program.outputs), len(program.inputs)
    for k in range(len(program.nodes) - 1, -1, -1):
        if first + k in needed:
            needed |= set(program.nodes[k].args)
    return needed


def fewer_nodes(graph: Graph) -> Iterator[Graph]:
    """Each node left out for one of its arguments; each made an input, with the value that it has."""
    program, first = graph.program, len(graph.program.inputs)
    for k in range(len(program.nodes) - 1, -1, -1):
        for arg in dict.fromkeys(program.nodes[k].args):
            yield with_outputs(graph, program.outputs) if arg == first + k else _substitute(graph, first + k, arg)
    try:
        values = [run(replace(program, outputs=tuple(range(first + len(program.nodes)))), c) for c in graph.calls]
    except Exception:
        return
    for k in range(len(program.nodes) - 1, -1, -1):
        if first + k in program.outputs and len(program.nodes) == 1:
            continue
        yield _as_input(graph, k, [v[first + k] for v in values])


def _substitute(graph: Graph, value: int, by: int) -> Graph:
    program = graph.program
    changed = replace(
        program,
        nodes=tuple(replace(n, args=tuple(by if a == value else a for a in n.args)) for n in program.nodes),
        outputs=tuple(by if o == value else o for o in program.outputs),
    )
    return with_outputs(replace(graph, program=changed), changed.outputs)


def _as_input(graph: Graph, k: int, values: Sequence[Tensor]) -> Graph:
    program, first = graph.program, len(graph.program.inputs)

    def moved(a: int) -> int:
        return first if a == first + k else a if a < first else a + 1 if a < first + k else a

    x = values[0]
    made = RandomGraph(
        (*program.inputs, Input(tuple(x.shape), str(x.dtype).removeprefix("torch."))),
        tuple(Node(n.op, tuple(map(moved, n.args)), n.attrs) for j, n in enumerate(program.nodes) if j != k),
        tuple(map(moved, program.outputs)),
        program.exact,
    )
    calls = tuple((*c, v.clone()) for c, v in zip(graph.calls, values, strict=True))
    return with_outputs(Graph(graph.subject, made, calls), made.outputs)


def smaller(graph: Graph) -> Iterator[Graph]:
    """Each size cut in all inputs that have it, with attributes as they are."""
    sizes = sorted({n for c in graph.calls for x in c for n in x.shape if n > 1}, reverse=True)
    for n in sizes:
        for start, length in cuts(n):
            yield replace(
                graph, calls=tuple(tuple(cut_where(x, n, start, length).clone() for x in c) for c in graph.calls)
            )


def plainer(graph: Graph, fails: Callable[[Graph], bool], deadline: Deadline) -> Graph:
    """As many elements of the inputs 1, or 0, as can be."""
    for c in range(len(graph.calls)):
        for n, x in enumerate(graph.calls[c]):
            if x.dtype == torch.bool or x.numel() > 4096 or deadline.over:
                continue

            def made(keep: Sequence[int], c: int = c, n: int = n, x: Tensor = x, now: Graph = graph) -> Graph:
                plain = torch.ones_like(x) if x.is_floating_point() else torch.zeros_like(x)
                plain.view(-1)[list(keep)] = x.reshape(-1)[list(keep)]
                call = (*now.calls[c][:n], plain, *now.calls[c][n + 1 :])
                return replace(now, calls=(*now.calls[:c], call, *now.calls[c + 1 :]))

            retained = ddmin(range(x.numel()), lambda keep, made=made: fails(made(keep)), deadline)  # type: ignore[misc]
            if len(retained) < x.numel():
                graph = made(retained)
    return graph


# -- the script --------------------------------------------------------------------------------------------------------


@cache
def _texts() -> dict[str, ast.expr]:
    """The expression of each operator, as its table has it."""
    for node in ast.walk(ast.parse(inspect.getsource(graph_ir))):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "OPS":
            assert isinstance(node.value, ast.Dict)
            smooth = {name: ast.parse(_path(f), mode="eval").body for name, f in graph_ir.SMOOTH.items()}
            written = zip(node.value.keys, node.value.values, strict=True)
            return smooth | {str(ast.literal_eval(k)): v for k, v in written if k}
    raise LookupError("The table of operators is not where it was.")


def _path(function: Callable[..., Tensor]) -> str:
    """Where a script finds a function of PyTorch."""
    return f"torch.{function.__name__}" if hasattr(torch, function.__name__) else f"F.{function.__name__}"


class _Substitute(ast.NodeTransformer):
    def __init__(self, by: dict[str, ast.expr]):
        self.by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.by.get(node.id, node)


def expression(node: Node, names: Sequence[str]) -> str:
    """A node as Python."""
    inputs = [ast.parse(name, mode="eval").body for name in names]
    attrs = {k: ast.parse(repr(v), mode="eval").body for k, v in node.attrs}
    text = _texts()[node.op]
    if isinstance(text, ast.Lambda):
        parameters = [a.arg for a in text.args.args]
        by = dict(zip(parameters, inputs, strict=False)) | attrs
        return ast.unparse(_Substitute(by).visit(ast.parse(ast.unparse(text.body), mode="eval").body))
    call = ast.Call(text, list(inputs), [ast.keyword(k, v) for k, v in attrs.items()])
    return ast.unparse(ast.fix_missing_locations(call))


def of(graph: Graph, verdict: Verdict, which: int) -> str:
    """The script of a program."""
    program, backend, device = graph.program, script.backend_of(graph.subject), load_backend(graph.subject).device
    values = [f"x{k}" for k in range(len(program.inputs))]
    inside = []
    for k, node in enumerate(program.nodes, len(program.inputs)):
        inside.append(f"    v{k} = {expression(node, [values[a] for a in node.args])}")
        values.append(f"v{k}")
    used = "\n".join(inside)
    parts = [
        [*inspect.getsource(f).rstrip().replace("Tensor", "torch.Tensor").splitlines(), ""]
        for f in (graph_ir._where, graph_ir._slice, graph_ir._zeros)
        if f"{f.__name__}(" in used
    ]
    functional = ["from torch.nn import functional as F"] if "F." in used else []
    last = run(program, graph.calls[-1])[which]
    body = [
        *(line for part in parts for line in part),
        f"def program({', '.join(values[: len(program.inputs)])}):",
        *inside,
        f"    return ({', '.join(values[o] for o in program.outputs)},)",
        "",
        f"run = keel.compile(program, backends={backend.backends}, strict=True)",
        *(f"found = run({', '.join(tensor(x, device=device) for x in call)})" for call in graph.calls),
        f"found = found[{which}].cpu()",
    ]
    if program.exact or not last.is_floating_point():
        body += [
            f"expected = {tensor(last, strides=False)}",
            'print("expected", expected, "found", found)',
            "same = found.dtype == expected.dtype and found.shape == expected.shape",
            "sys.exit(not (same and torch.equal(found.nan_to_num(7), expected.nan_to_num(7))))",
        ]
    else:
        exact, *others = [o.facts[-len(program.outputs) + which][2].double() for o in _references(graph)]
        spread = torch.stack([(x - exact).abs() for x in others]).amax(0)
        bound = 8 * torch.maximum(spread, spread.square().mean().sqrt()) + (
            16 * torch.finfo(last.dtype).eps / 2 * exact.abs().amax()
        )
        body += [
            f"expected = {tensor(exact, strides=False)}",
            f"bound = {tensor(bound, strides=False)}",
            'print("expected", expected, "found", found, "allowed error", bound)',
            "near = ((found.double() - expected).abs() <= bound) | ~expected.isfinite()",
            "sys.exit(not bool(near.all()))",
        ]
    return assemble(script.title(verdict, graph.subject), [*functional, *backend.imports], body)


def of_graph(
    folder: Path, subject: str, case: Case, v: Verdict, bench: ReplayPool, deadline: Deadline, *, trying: bool = True
) -> Written:
    """The script of a failing drawn program, made as small as time allows."""
    program = program_of(case)
    graph = Graph(subject, program, tuple(tuple(random_inputs(program, case.seed, k)) for k in range(CALLS)))
    kind, sentence, which = bench.value(replay, graph) or ("died", v.sentence, 0) if trying else ("", v.sentence, 0)
    nodes_before = len(program.nodes)
    if trying and kind not in ("", "harness error"):

        def fails(one: Graph) -> bool:
            return (bench.value(replay, one) or ("died",))[0] == kind

        graph = minimize(graph, fails, deadline)
        kind, sentence, which = bench.value(replay, graph) or ("died", v.sentence, 0)
    path = folder / name_of(case)
    path.write_text(of(graph, replace(v, sentence=sentence or v.sentence), which), encoding="utf-8")
    shown = trying and bench.status(str(path)) == 1
    return Written(case.id, name_of(case), shown, len(graph.program.nodes) < nodes_before)
