"""Links compiled parts into one callable: straight-line Python without decisions at run time, generated once
per graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.profiler import record_function

from keel.errors import KeelError, message_of
from keel.interrupts import is_interrupt
from keel.runtime.arena import lasting
from keel.runtime.link_program import LinkProgram, Value
from keel.runtime.python_source import Expression, Function, Name, Namespace, call, list_of, literal, method, tuple_of
from keel.torch_adapter import Boxed
from keel.types import leaves


@dataclass(frozen=True)
class CompiledPart:
    """A compiled part. It takes the values of the nodes ``inputs`` as positional arguments and returns those of
    ``outputs`` as a tuple. If ``run`` has an attribute ``boxed``, that is called, with the values in a list. It may
    empty the list, so that each value is freed after its last use.

    ``first`` is called in place of ``run`` until it has returned once. ``owner`` names the backend that compiled the
    part, ``trouble`` has the errors of backends that could not. Profilers show the ``label``. ``lines`` are the user's
    lines that made the outputs, as far as they are known.
    """

    name: str
    run: Callable[..., Sequence[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first: Callable[..., Sequence[Any]] | None = None
    owner: str = ""
    trouble: tuple[KeelError, ...] = ()
    label: str = ""
    lines: tuple[str | None, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The part as plain data."""
        inputs, outputs, trouble = list(self.inputs), list(self.outputs), [str(error) for error in self.trouble]
        shown = {"name": self.name, "owner": self.owner, "range": self.label, "inputs": inputs, "outputs": outputs}
        return shown | {"trouble": trouble} if trouble else shown

    @property
    def boxed(self) -> Callable[[list[Any]], Sequence[Any]] | None:
        boxed: Callable[[list[Any]], Sequence[Any]] | None = getattr(self.run, "boxed", None)
        return boxed


def link(program: LinkProgram, parts: Sequence[CompiledPart], constants: Mapping[str, torch.Tensor]) -> Boxed:
    """The graph as a callable that takes its inputs (less the constants) in a list and returns the list of its outputs.

    It empties the list, and drops every value after its last use. Sizes that the graph returns are computed inline.
    Exceptions of a part are passed on, with a note that names the part, its owner and the user's lines. Parts never get
    a tensor with a conjugate or negative bit.
    """
    return _Linker(program, parts, constants).build()


class _Linker:
    def __init__(self, program: LinkProgram, parts: Sequence[CompiledPart], constants: Mapping[str, torch.Tensor]):
        self.program, self.parts = program, parts
        self.space = Namespace()
        self.called: dict[int, CompiledPart] = {}  # the part that each line calls
        with lasting():
            for name in program.constants:
                self.space.shared(("value", name), f"c_{name}", resolve_lazy_bits(constants[name]))

    def build(self) -> Boxed:
        program = self.program
        args = self.space.variable("args", "args")
        out = Function(self.space, [args])
        out.show_ranges(args)
        out.guard()
        if program.inputs:
            out.unpack([*map(self.value, program.inputs)], args)
        out.do(method(args, "clear"))
        read = (program.results, *((s.args, *s.kwargs.values()) for s in program.sizes))
        last = _last_uses(self.parts, [leaf.name for leaf in leaves(read) if isinstance(leaf, Value)])
        out.delete([self.value(i) for i in program.inputs if i not in last])
        self.write_parts(out, last)
        for size in program.sizes:
            function = self.space.shared(("size", size.name), f"f_{size.name}", size.function)
            named = {k: self.argument(v) for k, v in size.kwargs.items()}
            out.assign(self.value(size.name), call(function, map(self.argument, size.args), named, self.space))
        out.give(list_of(map(self.argument, program.results)))
        out.guarded(self.space.shared("blame", "blame", partial(_blame, self.called)))
        run: Boxed = out.build("keel graph")
        return run

    def write_parts(self, out: Function, last: Mapping[str, int]) -> None:
        """Writes the calls of the parts. Lazy bits of inputs are resolved before each call, and values are dropped
        after their last use.
        """
        lazy, constants = self.program.lazy, self.program.constants
        first = {n: i for i, part in reversed([*enumerate(self.parts)]) for n in part.inputs}
        for i, part in enumerate(self.parts):
            for n in dict.fromkeys(part.inputs):
                if n in lazy and first[n] == i:
                    out.assign(
                        self.value(n), call(self.space.shared("settled", "settled", resolve_lazy_bits), [self.value(n)])
                    )
            dead = [
                n for n in dict.fromkeys((*part.inputs, *part.outputs)) if last.get(n, i) == i and n not in constants
            ]
            arguments = [*map(self.value, part.inputs)]
            if part.boxed is not None:
                inputs = self.space.variable("inputs", "inputs")
                out.assign(inputs, list_of(arguments))
                arguments = [inputs]
                out.delete([self.value(n) for n in dead if n in part.inputs])
                dead = [n for n in dead if n not in part.inputs]
            called = call(self.part(i, part), arguments)
            if part.outputs:
                out.unpack([*map(self.value, part.outputs)], called)
            else:
                out.do(called)
            out.in_range(record_function, part.label or part.name)
            self.called[out.number] = part
            out.delete([*map(self.value, dead)])

    def value(self, name: str) -> Name:
        """The variable of a node, or the name that a constant is bound to."""
        return self.space.variable(("value", name), f"v_{name}")

    def part(self, number: int, part: CompiledPart) -> Name:
        """The name that a part's function is bound to. After the first call, the checked function replaces itself by
        the bare part.
        """
        run = part.run if part.boxed is None else part.boxed
        name = self.space.shared(("part", number), part.name, run)
        if part.first is not None:
            first = part.first if part.boxed is None else _unboxed(part.first)
            self.space.objects[str(name)] = _once(self.space.objects, str(name), first, run)
        return name

    def argument(self, value: Any) -> Expression:
        if isinstance(value, Value):
            return self.value(value.name)
        if isinstance(value, list | tuple):
            return (list_of if isinstance(value, list) else tuple_of)(map(self.argument, value))
        if value is None or type(value) in (bool, int):
            return literal(value)
        return self.space.object(value, "constant")


def _once(names: dict[str, Any], name: str, first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        results = first(*args)
        names[name] = then
        return results

    return checked


def _unboxed(run: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    return lambda args: run(*args)


def _blame(called: Mapping[int, CompiledPart], raised: BaseException) -> None:
    """Adds a note to an exception that names its part, which is known from the line that was running. SystemExit and
    the like become KeelError[run-raised], unless they are the user's, so that a kernel cannot end the process.
    """
    trace = raised.__traceback__
    part = called.get(trace.tb_lineno) if trace else None
    if part is None or isinstance(raised, KeelError) or is_interrupt(raised):
        return
    places = dict.fromkeys(line for line in part.lines if line)
    if not isinstance(raised, Exception):
        raise KeelError(
            "run-raised",
            f"Part {part.name}, which {part.owner} compiled, tried to exit Python.",
            {part.owner: f"{type(raised).__name__}: {message_of(raised)}"},
            next(iter(places), None),
            "This is a defect of the backend. Leave it out, or report it.",
        ) from raised
    raised.add_note(
        "\n".join(
            [
                f"Raised in part {part.name}, which {part.owner} compiled.",
                *(f"  at {at}" for at in list(places)[:3]),
            ]
        )
    )


def resolve_lazy_bits(x: torch.Tensor) -> torch.Tensor:
    """Returns ``x``, or a copy with the same strides if ``x`` has a conjugate or negative bit."""
    if not x.is_conj() and not x.is_neg():
        return x
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return x.as_strided((span,), (1,)).resolve_conj().resolve_neg().as_strided(x.shape, x.stride())


def _last_uses(parts: Sequence[CompiledPart], retained: Sequence[str]) -> dict[str, int]:
    """The number of the last part that uses each value. For a value in ``retained`` it is the number of parts."""
    last = {name: i for i, part in enumerate(parts) for name in part.inputs}
    return last | dict.fromkeys(retained, len(parts))
