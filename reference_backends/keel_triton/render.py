"""Renders a kernel as Triton source: one function per launch, with a helper for each part if there are several."""

from __future__ import annotations

from keel.loops import Kernel
from keel_triton.emitter import body
from keel_triton.index_text import product_text, tight
from keel_triton.launch_plan import Launch, plan

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice
"""


def render(kernel: Kernel) -> str:
    """The source of a module that has a function for each launch of ``kernel``."""
    helpers: dict[str, str] = {}
    functions = [text for launch in plan(kernel) for text in _functions(launch, helpers)]
    return "\n\n".join([HEADER, *helpers.values(), *functions])


def parameters(launch: Launch) -> list[str]:
    return [*launch.arguments, *(f"{c}: tl.constexpr" for c in launch.constants)]


def _functions(launch: Launch, helpers: dict[str, str]) -> list[str]:
    remarks = [f"# {name} = {d}" for name, d in launch.numbers.items() if name != str(d)]
    bodies = [body(launch, k, helpers) for k in range(len(launch.parts))]
    if len(bodies) == 1:
        start = ["pid = tl.program_id(0)"] if launch.parts[0].axes else []
        return [_function(launch.name, parameters(launch), [*remarks, *start, *bodies[0]])]
    names = [f"{launch.name}_part{k}" for k in range(len(bodies))]
    functions = [_function(n, ["pid", *parameters(launch)], b) for n, b in zip(names, bodies, strict=True)]
    return [*functions, _function(launch.name, parameters(launch), [*remarks, *_dispatch(launch, names)])]


def _dispatch(launch: Launch, names: list[str]) -> list[str]:
    """Each program runs the part whose range contains its number."""
    args = ", ".join(p.split(":")[0] for p in parameters(launch))
    counts, calls, last = ["pid = tl.program_id(0)"], [], len(names) - 1
    for k, (part, name) in enumerate(zip(launch.parts, names, strict=True)):
        rows, outer = (product_text((a.size for a in axes), launch.sizes) for axes in (part.axes, part.outer))
        count = f"tl.cdiv({rows}, XBLOCK{launch.suffix(k)})" if part.axes else "1"
        count = f"{tight(outer)} * {count}" if part.outer else count
        if k < last:
            counts.append(f"end{k} = {f'end{k - 1} + ' if k else ''}{count}")
        calls.append("else:" if k == last else f"{'elif' if k else 'if'} pid < end{k}:")
        calls.append(f"    {name}({f'pid - end{k - 1}' if k else 'pid'}, {args})")
    return [*counts, *calls]


def _function(name: str, params: list[str], body: list[str]) -> str:
    return f"@triton.jit\ndef {name}({', '.join(params)}):\n" + "".join(f"    {line}\n" for line in body)
