"""Parts whose backends take their constants in a form of their own, made once per version of the constants."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx

from keel.interrupts import is_interrupt
from keel.plugin import Backend, CompileContext, Constant, PreparedConstants, with_context
from keel.runtime.contract_checks import Run
from keel.runtime.part_context import options_of
from keel.torch_adapter import LastingValue

Instead = Callable[[BaseException], Run]
"""Gets what ``prepare`` raised, and returns the part in another form, or raises."""


def runnable(run: Any, gm: fx.GraphModule, ctx: CompileContext, instead: Instead) -> Run:
    """What ``compile`` returned for a part, as a function of all its inputs. Raises TypeError if it is not callable."""
    if isinstance(run, Coroutine):
        run.close()  # otherwise Python warns that it was never awaited
    if isinstance(run, PreparedConstants):
        return PreparedPart(run, [n.name for n in gm.graph.find_nodes(op="placeholder")], ctx.constants, instead)
    if not callable(run):
        raise TypeError(f"`compile` returned {type(run).__name__}, not a callable.")
    return cast(Run, run)


def compile_part(backend: Backend, gm: fx.GraphModule, ctx: CompileContext | None = None) -> Run:
    """Compiles a part with a plugin of any version of the API. Returns a function of all inputs of the part, which
    prepares constants if the backend does. Its results are not checked and not laid out.

    Without a ``ctx`` it has no constants, and each option its default. Raises what the backend raises, and TypeError if
    ``compile`` does not return a callable.
    """
    if ctx is None:
        ctx = CompileContext(options=options_of(backend, {}))
    return runnable(with_context(backend.compile, ctx)(gm), gm, ctx, _passed_on)


def _passed_on(raised: BaseException) -> Run:
    raise raised


class PreparedPart:
    """A compiled part, as a function of all its inputs, that prepares the constants among them when they are new.
    ``inputs`` are the names of its placeholders. If ``prepare`` raises, the part is what ``instead`` returns.
    """

    def __init__(
        self, prepared: PreparedConstants, inputs: Sequence[str], constants: Mapping[str, Constant], instead: Instead
    ) -> None:
        self.prepared, self.prepare, self.run = prepared, prepared.prepare, prepared.run
        self._names = tuple(name for name in inputs if name in constants)
        self._constants = tuple(i for i, name in enumerate(inputs) if name in constants)
        self._others = tuple(i for i, name in enumerate(inputs) if name not in constants)
        self._frozen = all(constants[name].value is not None for name in self._names)
        self._state = LastingValue(self._prepared)
        self._known: list[Any] = []
        self._instead, self._left = instead, list[Run]()

    def _prepared(self, *tensors: torch.Tensor) -> Any:
        return self.prepare(dict(zip(self._names, tensors, strict=True)))

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if self._left:
            return self._left[0](*inputs)
        try:
            state = self._constant_state(inputs)
        except BaseException as raised:
            if is_interrupt(raised):
                raise
            self._left.append(self._instead(raised))
            return self._left[0](*inputs)
        results: Sequence[Any] = self.run(state, *[inputs[i] for i in self._others])
        return results

    def _constant_state(self, inputs: Sequence[Any]) -> Any:
        if not self._frozen:
            return self._state.of(*[inputs[i] for i in self._constants])
        if not self._known:
            self._known.append(self._state.of(*[inputs[i] for i in self._constants]))
        return self._known[0]
