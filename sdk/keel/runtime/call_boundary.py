"""What happens around the compiled graph of a program: its arguments are checked before a call, and what the functional
graph cannot do is done after it. New contents are copied to inputs and buffers, and results that are views are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import sympy
import torch
from torch import fx

from keel.errors import KeelError
from keel.loops.symbolic_sizes import evaluate
from keel.runtime.contract_checks import bind, mismatch, strides_of
from keel.runtime.link import resolve_lazy_bits
from keel.runtime.result_casts import with_strides
from keel.symbols import free_symbols
from keel.torch_adapter import Boxed, Tree, flatten_call, without_autocast
from keel.types import TensorType, Type

Side = Literal["argument", "input", "result", "stored"]
"""Where the end of a call takes a value from: the arguments as the caller passed them or as the graph took them, the
results of the graph, or the stored tensors.
"""
MISFIT = "The arguments do not fit the exported program."
MOST_FITTING = 64
"""The most sets of arguments that a boundary remembers."""


@dataclass(frozen=True, eq=False)
class CallBoundary:
    """The leaves of a call's arguments and results, and what is between these and the compiled graph.

    The leaf ``names[i]`` is of the type ``types[i]``, or has the value ``fixed[i]``. Symbols lie in their ``ranges``
    (None where these are open), and ``guards`` are other conditions on them. The graph takes the leaves
    ``graph_inputs``. After a call, ``end`` gets the values ``end_inputs``, writes, and returns the leaves of the
    results.
    """

    names: tuple[str, ...]
    types: Mapping[int, Type]
    fixed: Mapping[int, Any]
    ranges: Mapping[str, tuple[int | None, int | None]]
    graph_inputs: tuple[int, ...]
    end: fx.GraphModule
    end_inputs: tuple[tuple[Side, int | str], ...]
    guards: tuple[sympy.Basic, ...] = ()
    _fitting: set[tuple[Any, ...]] = field(default_factory=set, repr=False)
    """What arguments were that fit, and that the graph took as they are. They are not checked again."""

    def call(self, run: Boxed, leaves: list[Any], stored: Mapping[str, torch.Tensor]) -> Sequence[Any]:
        """The leaves of the results, of the leaves of the arguments. Raises KeelError[bad-input]."""
        with torch.no_grad(), without_autocast():
            inputs = self.checked(leaves)
            results = run([inputs[i] for i in self.graph_inputs])
            sides: dict[Side, Any] = {"argument": leaves, "input": inputs, "result": results, "stored": stored}
            made: Sequence[Any] = self.end(*(sides[side][which] for side, which in self.end_inputs))
            return made

    def checked(self, leaves: list[Any]) -> list[Any]:
        """The leaves in the form that the graph takes. Raises KeelError[bad-input]."""
        if len(leaves) != len(self.names):
            raise KeelError("bad-input", MISFIT, {"program": f"It takes {len(self.names)} values, not {len(leaves)}."})
        wrong = {
            self.names[i]: f"It is {leaves[i]!r}, but the program was exported for {value!r}."
            for i, value in self.fixed.items()
            if type(leaves[i]) is not type(value) or leaves[i] != value
        }
        facts = tuple(_facts(leaves[i]) for i in self.types)
        if not wrong and facts in self._fitting:
            return leaves
        inputs = self._checked(leaves, wrong)
        if all(inputs[i] is leaves[i] for i in self.types) and None not in facts:
            if len(self._fitting) == MOST_FITTING:
                self._fitting.clear()
            self._fitting.add(facts)
        return inputs

    def _checked(self, leaves: list[Any], wrong: dict[str, str]) -> list[Any]:
        order = [i for i in self.types if self._fits(i, leaves[i])]
        known = bind([self.types[i] for i in order], [leaves[i] for i in order])
        for i, want in self.types.items():
            if (why := mismatch(want, leaves[i], known, strides=False)) is not None:
                wrong[self.names[i]] = why.sentence
        wrong |= self._beyond(known)
        if wrong:
            raise KeelError("bad-input", MISFIT, wrong)
        inputs = list(leaves)
        for i, want in self.types.items():
            if isinstance(want, TensorType):
                inputs[i] = _laid_out(self.names[i], want, resolve_lazy_bits(leaves[i]), known)
        return inputs

    def _fits(self, i: int, value: Any) -> bool:
        want = self.types[i]
        return (
            isinstance(value, torch.Tensor) and value.dim() == want.rank
            if isinstance(want, TensorType)
            else isinstance(value, int | float)
        )

    def _beyond(self, known: Mapping[str, int]) -> dict[str, str]:
        """What is wrong with the values of symbols, by symbol or condition."""
        wrong = {}
        for symbol, (low, high) in self.ranges.items():
            value = known.get(symbol)
            if value is None or ((low is None or low <= value) and (high is None or value <= high)):
                continue
            ends = ("-infinity" if low is None else low, "infinity" if high is None else high)
            wrong[symbol] = f"This size is {value}, not between {ends[0]} and {ends[1]}."
        for guard in self.guards:
            if all(symbol in known for symbol in free_symbols(guard)) and not evaluate(guard, known):
                wrong[str(guard)] = "The program was compiled on this condition on sizes, which does not hold."
        return wrong


def _facts(value: Any) -> tuple[Any, ...] | None:
    """What an argument is to the checks; None for what they have to look at each time."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return None
        bits = (value.is_conj(), value.is_neg())
        return type(value), value.dtype, value.device, value.shape, value.stride(), bits
    return (type(value), value) if type(value) in (bool, int, float) else None


def leaves_of(tree: Tree, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of the arguments of a call. Raises KeelError[bad-input] if they are not nested as ``tree`` says."""
    try:
        return flatten_call(tree, args, kwargs)
    except ValueError as e:
        raise KeelError("bad-input", MISFIT, {"program": str(e)}) from None


def _laid_out(name: str, want: TensorType, x: torch.Tensor, known: Mapping[str, int]) -> torch.Tensor:
    """A tensor with the strides that the graph was traced for: the argument itself if it has them, else a copy. Raises
    KeelError[bad-input] if the graph takes a tensor that is expanded, and elements that would be one differ.
    """
    strides = strides_of(want, known)
    if all(n <= 1 or s in (None, t) for n, s, t in zip(x.shape, strides, x.stride(), strict=True)):
        return x
    solid = [t if s is None else s for s, t in zip(strides, x.stride(), strict=True)]
    copy = with_strides(x, solid)
    for d, (n, step, t) in enumerate(zip(x.shape, solid, x.stride(), strict=True)):
        if n > 1 and step == 0 != t and not torch.equal(x, x.narrow(d, 0, 1).expand_as(x)):
            why = f"Its elements differ along dimension {d}, along which the example of the export was expanded."
            raise KeelError("bad-input", MISFIT, {name: why}, do="Export the program with an example of contiguous().")
    return copy
