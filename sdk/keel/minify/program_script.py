"""A failing program as a script that needs PyTorch and the backend alone: it exits with 1 if the program fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keel.minify.failure import LEAST, SLOWER, Failure, Subject, arithmetic_of, settings_of
from keel.minify.graph_program import GETITEM, Program, Value, evaluate
from keel.minify.judged_program import budgets
from keel.minify.reduce import counted
from keel.minify.script_text import assemble
from keel.minify.tensor_literals import SMALL, tensor, text_of

DIES = ("crash", "hang", "memory")
"""Failures that end a process: the script makes the call in another one."""
PATIENCE, HANGING, MEMORY = 300, 60, 8 << 30
"""The seconds that a script waits for that process, and for one that hangs; and the bytes that it may have."""
FINISHED = "All calls have returned."
"""The process prints this at its end: a process that ends early may have the status 0."""


@dataclass(frozen=True)
class BackendText:
    """How a script names the backends: the lines that import them, and the list."""

    imports: tuple[str, ...]
    listed: str


def backend_text(subject: Subject) -> BackendText:
    """The text of a subject's backends."""
    imports, names = list[str](), list[str]()
    for number, text in enumerate(subject.backends):
        module, _, path = text.partition(":")
        if not path:
            names.append(f'"{text}"')
            continue
        first, _, rest = path.partition(".")
        own = "backend" if len(subject.backends) == 1 else f"backend{number}"
        imports.append(f"from {module} import {first} as {own}")
        names.append(f"{own}.{rest}" if rest else own)
    if "eager" not in subject.backends:
        names.append('"eager"')
    return BackendText(tuple(imports), f"[{', '.join(names)}]")


def program_lines(program: Program) -> list[str]:
    """The program as a function of Python."""
    return [
        f"def program({', '.join(program.params)}):",
        *(f"    {call.name} = {_expression(call.op, call.args, call.kwargs)}" for call in program.calls),
        f"    return ({', '.join(program.outputs)},)",
    ]


def _expression(op: str, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]]) -> str:
    words = [*map(_word, args), *(f"{k}={_word(v)}" for k, v in kwargs)]
    return f"{words[0]}[{words[1]}]" if op == GETITEM else f"torch.ops.{op}({', '.join(words)})"


def _word(value: Any) -> str:
    match value:
        case Value(name):
            return name
        case list() | tuple():
            inside = ", ".join(map(_word, value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    return text_of(value)


def script(program: Program, subject: Subject, failure: Failure) -> str:
    """The text of the script. Raises ValueError if it would have more than 40 lines."""
    backend = backend_text(subject)
    sentence = " ".join(failure.sentence.replace("\\", "/").replace('"', "'").split())[:200]
    head = f'"""{", ".join(subject.backends)}: {failure.kind}. {sentence} """'
    options = {"strict": True, "placement": "order", **dict(subject.options)}
    words = ", ".join(f'"{k}": {_literal(v)}' for k, v in options.items())
    imports = list(backend.imports)
    body = [*program_lines(program), ""]
    body += [_arguments(f"args{n}", inputs) for n, inputs in enumerate(program.inputs)]
    options_text = f'{{"backends": {backend.listed}, {words}}}'
    run = f'run = torch.compile(program, backend="keel", dynamic=False, options={options_text})'
    if failure.kind in DIES:
        return assemble(head, [*imports, *_CHILD_IMPORTS], [*_child(failure.kind), *body, run, *_calls(program)])
    return assemble(head, imports, [*body, run, *_checks(program, subject, failure)])


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _arguments(name: str, inputs: Sequence[Any]) -> str:
    return f"{name} = [{', '.join(_tensor(x) for x in inputs)}]"


def _tensor(x: Any) -> str:
    if isinstance(x, Tensor) and x.numel() > SMALL and (recipe := _recipe(x)) is not None:
        return recipe
    return tensor(x, device=str(x.device.type)) if isinstance(x, Tensor) else text_of(x)


def _recipe(x: Tensor) -> str | None:
    """A short expression for the values that a reduction makes."""
    if not x.is_floating_point() or not x.is_contiguous():
        return None
    if torch.equal(counted(x), x):
        shape = tuple(x.shape)
        return f"((torch.arange({x.numel()}) % 7 - 3).to({x.dtype}) / 2).reshape({shape}).to({x.device.type!r})"
    return None


_CHILD_IMPORTS = ("import os", "import subprocess", "import resource")


def _child(kind: str) -> list[str]:
    """The lines that run the script in a process of its own, and report how that ended."""
    limit = [f"resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY}, {MEMORY}))"] if kind == "memory" else []
    seconds = HANGING if kind == "hang" else PATIENCE
    return [
        'if sys.argv[1:] != ["here"]:',
        '    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}',
        '    words = [sys.executable, __file__, "here"]',
        "    try:",
        f"        run = subprocess.run(words, timeout={seconds}, env=path, stdout=subprocess.PIPE, text=True)",
        f'        status = run.returncode if "{FINISHED}" in run.stdout else f"{{run.returncode}} before the end"',
        "    except subprocess.TimeoutExpired:",
        '        status = "no end"',
        '    print("expected an exit status of 0, found", status)',
        "    sys.exit(status != 0)",
        "",
        *limit,
    ]


def _calls(program: Program) -> list[str]:
    return [*(f"run(*args{n})" for n in range(len(program.inputs))), f'print("{FINISHED}")']


def _checks(program: Program, subject: Subject, failure: Failure) -> list[str]:
    calls = [f"found{n} = run(*args{n})" for n in range(len(program.inputs))]
    n, k = failure.run, failure.output
    match failure.kind:
        case "raises":
            return [*calls, 'print("expected no exception, and found none")']
        case "writes":
            return [
                *(f"before{i} = [x.clone() for x in args{i}]" for i in range(len(program.inputs))),
                *calls,
                f'print("expected arguments as before", before{n}, "found", args{n})',
                f"sys.exit(not all(map(torch.equal, before{n}, args{n})))",
            ]
        case "stale":
            return [
                calls[n],
                f"before = found{n}[{k}].clone()",
                *(c for i, c in enumerate(calls) if i != n),
                f'print("expected", before, "found", found{n}[{k}])',
                f"sys.exit(not torch.equal(before.nan_to_num(7), found{n}[{k}].nan_to_num(7)))",
            ]
        case "type":
            want = evaluate(program, *program.inputs[n])[k]
            return [
                *calls,
                f"expected = ({want.dtype}, {tuple(want.shape)})",
                f"found = (found{n}[{k}].dtype, tuple(found{n}[{k}].shape))",
                'print("expected", expected, "found", found)',
                "sys.exit(found != expected)",
            ]
        case "slow":
            return _timing()
    return [*calls, *_values(program, subject, n, k)]


def _timing() -> list[str]:
    return [
        "run(*args0)",
        "eager = min(timeit.repeat(lambda: program(*args0), number=5, repeat=9)) / 5",
        "found = min(timeit.repeat(lambda: run(*args0), number=5, repeat=9)) / 5",
        f'print("expected at most {SLOWER:g} times", eager, "seconds, found", found)',
        f"sys.exit(found > {SLOWER} * eager and found - eager > {LEAST})",
    ]


def _values(program: Program, subject: Subject, n: int, k: int) -> list[str]:
    budget = budgets(program, program.inputs[n], arithmetic_of(settings_of(subject)))[k]
    lines = [f"found = found{n}[{k}].cpu()"]
    if budget.reference.is_floating_point():  # in float64, as what rounds is
        lines += [
            f"expected = {tensor(budget.reference.to(torch.float64), strides=False)}",
            f"bound = {tensor(budget.bound, strides=False)}",
            'print("expected", expected, "found", found, "allowed error", bound)',
            "near = ((found.double() - expected).abs() <= bound) | (found.double() == expected) | bound.isinf()",
            "sys.exit(not bool((near | (found.isnan() & expected.isnan())).all()))",
        ]
    else:
        lines += [
            f"expected = {tensor(budget.reference, strides=False)}",
            f"unsure = {tensor(budget.bound.isinf(), strides=False)}",
            'print("expected", expected, "found", found)',
            "sys.exit(not bool(((found == expected) | unsure).all()))",
        ]
    return lines
