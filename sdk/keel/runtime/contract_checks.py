"""Checks compiled parts against their contract: types on the first call, and with KEEL_CHECK=1 everything on every
call.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import alias_bases, source_line, type_of
from keel.loops.symbolic_sizes import evaluate
from keel.types import Dim, SymType, TensorType, Type, leaves

Run = Callable[..., Sequence[Any]]


NUMBERS = "numbers"
"""The word in KEEL_CHECK that asks for checks of numbers alone."""


def check_words() -> list[str]:
    """The words in KEEL_CHECK, which has commas between them."""
    return [word.strip() for word in os.environ.get("KEEL_CHECK", "0").split(",")]


def is_checking_every_call() -> bool:
    """True if KEEL_CHECK=1 asks for every check on every call."""
    return any(word not in ("", "0") and not word.startswith(NUMBERS) for word in check_words())


@dataclass(frozen=True)
class PartContract:
    """The contract of a part: the types of its inputs and outputs. Each output has the name of its node, the user's
    line that made it, the inputs whose memory it may share, and the nodes whose memory it may be in. ``real`` is True
    if no value of the part is complex, so that no tensor has a conjugate or negative bit.
    """

    owner: str
    part: str
    inputs: tuple[Type, ...]
    outputs: tuple[Type, ...]
    names: tuple[str, ...]
    lines: tuple[str | None, ...]
    shares: tuple[frozenset[int], ...]
    bases: tuple[frozenset[str], ...]
    real: bool = False


def contract_of(gm: fx.GraphModule, owner: str, part: str) -> PartContract:
    """The contract that the graph of a part implies."""
    inputs = gm.graph.find_nodes(op="placeholder")
    number = {node: i for i, node in enumerate(inputs)}
    results = gm.graph.output_node().args[0]
    base = alias_bases(gm.graph)
    nodes = [r for r in leaves(results) if isinstance(r, fx.Node)]
    return PartContract(
        owner,
        part,
        tuple(type_of(n.meta["val"]) for n in inputs),
        tuple(type_of(r.meta["val"]) for r in nodes),
        tuple(r.name for r in nodes),
        tuple(source_line(r) for r in nodes),
        tuple(frozenset(number[b] for b in base[r] if b in number) for r in nodes),
        tuple(frozenset(b.name for b in base[r]) for r in nodes),
        not any(_has_complex(n.meta.get("val")) for n in gm.graph.nodes),
    )


def _has_complex(value: Any) -> bool:
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in leaves(value))


def check_first_call(run: Run, made: PartContract) -> Run:
    """Wraps ``run`` with a check of the number, dtypes, shapes, strides, devices and kinds of its outputs. It raises
    KeelError[wrong-result].
    """

    def checked(*args: Any) -> Sequence[Any]:
        results = run(*args)
        _verify_types(made, args, results)
        return results

    return checked


def check_every_call(run: Run, made: PartContract) -> Run:
    """Wraps ``run`` with a check of its whole contract on every call. Types are checked as on a first call. ``run``
    must not write to an input. An output must not share memory with an input, another output, or a result of an earlier
    call that is still alive. An output must not be a Parameter, and must not require grad unless an input does and
    autograd is on. Raises KeelError[wrong-result].
    """
    earlier = _Earlier()

    def checked(*args: Any) -> Sequence[Any]:
        before = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
        results = run(*args)
        _verify_types(made, args, results)
        pairs = enumerate(zip(before, args, strict=True))
        written = [f"input {i}" for i, (was, now) in pairs if not _untouched(was, now)]
        if written:
            raise _wrong(made, {made.owner: f"It wrote to {', '.join(written)}."})
        wrong = [*_shared(made, args, results), *_stale(made, args, results, earlier), *_marked(made, args, results)]
        if wrong:
            raise _wrong(made, {made.owner: " ".join(wrong)})
        return results

    return checked


class _Earlier:
    """The results of earlier calls that are still alive, by the address of their memory."""

    def __init__(self) -> None:
        self._alive: dict[int, weakref.ref[torch.Tensor]] = {}
        self._most = 64

    def has(self, memory: int) -> bool:
        """True if the memory at this address belongs to a result that is alive."""
        result = known() if (known := self._alive.get(memory)) is not None else None
        return result is not None and _memory(result) == memory

    def add(self, memory: int, result: torch.Tensor) -> None:
        self._alive[memory] = weakref.ref(result)
        if len(self._alive) > self._most:
            self._alive = {m: r for m, r in list(self._alive.items()) if r() is not None}
            self._most = max(64, 2 * len(self._alive))


def _verify_types(made: PartContract, args: Sequence[Any], results: Any) -> None:
    if not isinstance(results, tuple | list):
        raise _wrong(made, {made.owner: f"It returned {type(results).__name__}, not a tuple."})
    if len(results) != len(made.outputs):
        raise _wrong(made, {made.owner: f"It returned {len(results)} values, not {len(made.outputs)}."})
    known = bind(made.inputs, args)
    reasons: dict[str, str] = {}
    line = aspect = None
    for name, at, want, got in zip(made.names, made.lines, made.outputs, results, strict=True):
        if (why := mismatch(want, got, known) or _unusual(made, args, got)) is not None:
            reasons[f"%{name}"] = why.sentence
            line, aspect = line or at, aspect or why.aspect
    if reasons:
        raise _wrong(made, reasons, line, aspect)


def _wrong(
    made: PartContract, reasons: dict[str, str], line: str | None = None, aspect: str | None = None
) -> KeelError:
    return KeelError(
        "wrong-result",
        f"{made.owner} broke the contract of part {made.part}.",
        reasons,
        line,
        f"This is a defect of the backend {made.owner}. Leave it out, or report it to its vendor.",
        aspect=aspect,
    )


class Mismatch(NamedTuple):
    """How a value differs from its type: the property (``aspect`` of KeelError), and a sentence."""

    aspect: str
    sentence: str


def mismatch(want: Type, got: Any, known: Mapping[str, int], *, strides: bool = True) -> Mismatch | None:
    """How ``got`` differs from the type ``want``, whose symbols have the values in ``known``; None if it has the type.
    A size that depends on other symbols may have any value, and so may the stride of a dimension with at most one
    element.
    """
    if isinstance(want, SymType):
        number = isinstance(got, int | float)
        return None if number else Mismatch("type", f"It is {type(got).__name__}, not a number.")
    if not isinstance(got, torch.Tensor):
        return Mismatch("type", f"It is {type(got).__name__}, not a tensor.")
    if got.dtype != want.dtype:
        return Mismatch("dtype", f"Its dtype is {got.dtype}, not {want.dtype}.")
    if got.device.type != want.device.type or want.device.index not in (None, got.device.index):
        return Mismatch("device", f"Its device is {got.device}, not {want.device}.")
    shape = [_value(d, known) for d in want.shape]
    if len(shape) != got.dim() or any(n is not None and n != m for n, m in zip(shape, got.shape, strict=True)):
        return Mismatch("shape", f"Its shape is {list(got.shape)}, not {_words(want.shape, shape)}.")
    steps = strides_of(want, known)
    per_dim = zip(got.shape, steps, got.stride(), strict=True)
    if strides and got.numel() > 0 and any(s is not None and s != t and n > 1 for n, s, t in per_dim):
        return Mismatch("strides", f"Its strides are {list(got.stride())}, not {_words(want.strides, steps)}.")
    return None


def _unusual(made: PartContract, args: Sequence[Any], got: Any) -> Mismatch | None:
    """How a tensor differs from a plain one: kernels or autograd would not see the values that it shows."""
    if not isinstance(got, torch.Tensor):
        return None
    inputs = [a for a in args if isinstance(a, torch.Tensor)]
    if made.real and got.is_neg():
        return Mismatch(
            "values",
            "Its negative bit is set (torch.Tensor.is_neg), so its memory holds the values with the other sign.",
        )
    if got.is_inference() and not torch.is_inference_mode_enabled() and not any(a.is_inference() for a in inputs):
        return Mismatch(
            "type", "It is an inference tensor, made under torch.inference_mode, which autograd cannot record."
        )
    if _is_plain_subclass(type(got)) and not any(type(a) is type(got) for a in inputs):
        return Mismatch("type", f"It is a {type(got).__name__}, a subclass, and not a plain torch.Tensor.")
    return None


def _is_plain_subclass(kind: type[torch.Tensor]) -> bool:
    """True if it is a subclass of tensors without data of its own, which only ``as_subclass`` makes."""
    return kind not in (torch.Tensor, torch.nn.Parameter) and kind.__torch_dispatch__ == torch.Tensor.__torch_dispatch__


def bind(types: Sequence[Type], values: Sequence[Any]) -> dict[str, int]:
    """Maps the symbols that are a size or a number in ``types`` to their values in ``values``."""
    known: dict[str, int] = {}
    for t, value in zip(types, values, strict=True):
        pairs = zip(t.shape, value.shape, strict=True) if isinstance(t, TensorType) else [(t.expr, value)]
        known |= {str(want): got for want, got in pairs if isinstance(want, sympy.Symbol)}
    return known


def strides_of(t: TensorType, known: Mapping[str, int]) -> list[int | None]:
    """The strides, computed from the symbols in ``known``; None for a stride that depends on others."""
    return [_value(d, known) for d in t.strides]


def _words(dims: Sequence[Dim], values: Sequence[int | None]) -> str:
    return f"[{', '.join(str(d if v is None else v) for d, v in zip(dims, values, strict=True))}]"


def _value(dim: Dim, known: Mapping[str, int]) -> int | None:
    try:
        return evaluate(dim, known)
    except KeyError:
        return None


def _untouched(was: Any, now: Any) -> bool:
    """True if a tensor has the same bits as before, NaNs included."""
    if not isinstance(now, torch.Tensor):
        return True
    if was.shape != now.shape or was.dtype != now.dtype:
        return False
    return torch.equal(_bits(was), _bits(now))


def _bits(t: torch.Tensor) -> torch.Tensor:
    return t.detach().contiguous().reshape(-1).view(torch.uint8)


def _shared(made: PartContract, args: Sequence[Any], results: Sequence[Any]) -> Iterator[str]:
    """Yields a sentence for each output that shares memory against the contract. Inputs may share memory with each
    other.
    """
    input_memories = [_memory(a) for a in args]
    output_memories = [_memory(r) for r in results]
    for i, name in enumerate(made.names):
        if output_memories[i] is None or output_memories[i] in {input_memories[k] for k in made.shares[i]}:
            continue
        if output_memories[i] in input_memories:
            yield f"Its output %{name} shares memory with input {input_memories.index(output_memories[i])}."
        for j in range(i):
            if output_memories[i] == output_memories[j] and not made.bases[i] & made.bases[j]:
                yield f"Its outputs %{made.names[j]} and %{name} share memory."


def _stale(made: PartContract, args: Sequence[Any], results: Sequence[Any], earlier: _Earlier) -> Iterator[str]:
    """Yields a sentence for each output in the memory of a result of an earlier call that is still alive."""
    input_memories = [_memory(a) for a in args]
    fresh: dict[int, torch.Tensor] = {}
    for i, (name, result) in enumerate(zip(made.names, results, strict=True)):
        memory = _memory(result)
        if memory is None or memory in {input_memories[k] for k in made.shares[i]}:
            continue
        if earlier.has(memory):
            yield f"Its output %{name} shares memory with a result of an earlier call that is still in use."
        fresh[memory] = result
    for memory, result in fresh.items():
        earlier.add(memory, result)


def _marked(made: PartContract, args: Sequence[Any], results: Sequence[Any]) -> Iterator[str]:
    """Yields a sentence for each output that autograd, or a module that it is assigned to, would treat as more than a
    value.
    """
    inputs = [a for a in args if isinstance(a, torch.Tensor)]
    tracked = {_memory(a) for a in inputs if a.requires_grad}
    for name, result in zip(made.names, results, strict=True):
        if not isinstance(result, torch.Tensor) or any(result is a for a in inputs):
            continue
        if isinstance(result, torch.nn.Parameter):
            yield f"Its output %{name} is a torch.nn.Parameter, not a plain tensor."
        elif result.requires_grad and not (torch.is_grad_enabled() and tracked) and _memory(result) not in tracked:
            yield f"Its output %{name} requires grad, although no input does or autograd is off."


def _memory(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return None
    return value.untyped_storage().data_ptr() or None
