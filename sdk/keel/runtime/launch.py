"""The launch list of a loop-level part, as one flat Python function over one planned arena.

The function's text is generated once per part: allocate outputs, launch kernels, call libraries, return. Sizes that
are symbolic are its int arguments, solved once per call; what depends on their values alone (the arena and the
views into it) is made once per distinct values and kept for the next call. Sizes that only a library's result tells
(of a nonzero, say) are read off it, and what has them is allocated from there on.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import sympy
import torch

from keel.errors import KeelError
from keel.loops.dims import evaluate
from keel.loops.ir import Kernel
from keel.plugin import Launcher
from keel.runtime.trouble import outside, recorded, settling
from keel.schedule.memory import Lifetime, pack
from keel.schedule.plan import Launch, Schedule
from keel.schedule.tensors import External, Site, Slot
from keel.symbols import PYTHON_NAMES, python_text
from keel.types import Dim, SymType, TensorType, as_dim, symbols_of

BINDINGS = 32
"""How many sets of sizes keep their arenas."""


def program(schedule: Schedule, launchers: Mapping[Kernel, Launcher]) -> Callable[..., tuple[Any, ...]]:
    """A callable that takes the part's inputs positionally and returns the tuple of its outputs.

    Safe to call from several threads: each call holds an arena of its own.
    """
    return _Program(schedule, launchers).build()


CHUNK = 2048
"""How many values a chunk of CPython's frame stack holds (3.11 to 3.13: 16 KiB)."""


def _with_room(run: FunctionType) -> None:
    """Has a long list's frame open a chunk of the frame stack of its own.

    A frame that fills its caller's chunk leaves no room for the frames of launchers: each call would map a new chunk
    and unmap it, which takes 5 to 28 us instead of 0.2.
    """
    code = run.__code__
    if code.co_nlocals + code.co_stacksize > CHUNK // 4:
        run.__code__ = code.replace(co_stacksize=max(code.co_stacksize, CHUNK))


class _Program:
    def __init__(self, schedule: Schedule, launchers: Mapping[Kernel, Launcher]):
        self.schedule, self.launchers = schedule, launchers
        self.tensors = schedule.tensors
        self.told: dict[str, str] = {}                       # symbols by the text that says what they are
        self.symbols = self._symbols()
        self.early = self._early()
        self.names: dict[str, Any] = {**PYTHON_NAMES, "empty_strided": torch.empty_strided,
                                      "as_strided": torch.as_strided, "fit": fit}
        self.held = {s.results[0]: s.operands[0] for s in schedule.steps
                     if isinstance(s, External) and s.extern.view and s.operands}
        self.given = {i for i in self.tensors.inputs if isinstance(i, int)}
        self.sites: list[Site] = []                          # by where their checks record
        self.places = {t: self._recorded(sites) for t, sites in self.tensors.checks.items()}
        self.kept: list[int] = self._in_arena()
        self.bound: set[int] = set(self.given)               # tensors that the text has a variable for
        self.bound |= self.tensors.checks.keys()

    # -- what lives where ------------------------------------------------------------------------------

    def _in_arena(self) -> list[int]:
        """Base tensors that are made here, into memory given to the maker, and that no output shows. What is read from
        where its storage starts has a storage of its own, as it had in the graph.
        """
        shown = {m for o in self.tensors.outputs if isinstance(o, int) for m in self._memory(o)}
        shown |= {m for s in self.schedule.steps if isinstance(s, External) and s.absolute for t in s.operands
                  for m in self._memory(t)}
        early = set(self.early)
        made: dict[int, None] = {}
        for step in self.schedule.steps:
            for t in self._made_into(step):
                made[t] = None
        other = shown | self.tensors.checks.keys()
        return [t for t in made if t not in other and early.issuperset(self._type(t).symbols)]

    def _memory(self, tensor: int) -> Iterator[int]:
        """The base tensor that ``tensor`` lies in, then those that a library's view of them lies in."""
        base = self.tensors.base(tensor)[0]
        yield base
        if base in self.held:
            yield from self._memory(self.held[base])

    def _made_into(self, step: Launch | External) -> tuple[int, ...]:
        if isinstance(step, Launch):
            return step.writes
        return step.results if _fills(step) else ()

    def _lifetimes(self, sizes: Mapping[str, int]) -> list[Lifetime]:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for k, step in enumerate(self.schedule.steps):
            touched = step.tensors if isinstance(step, Launch) else (*step.operands, *step.results)
            for t in touched:
                for base in self._memory(t) if t >= 0 else ():
                    first.setdefault(base, k)
                    last[base] = k
        return [Lifetime(evaluate(self._type(t).extent, sizes) * self._type(t).dtype.itemsize, first[t], last[t])
                for t in self.kept]

    def _type(self, tensor: int) -> TensorType:
        return self.tensors.tensors[tensor].type

    def arena(self, values: tuple[int, ...]) -> list[Any]:
        """Fresh memory for one call: the kept tensors, the views into them, then what checks record in."""
        sizes = dict(zip(self.early, values, strict=True))
        offsets, total = pack(self._lifetimes(sizes))
        made: dict[int, torch.Tensor] = {}
        if self.kept:
            memory = torch.empty(total, dtype=torch.uint8, device=self._type(self.kept[0]).device)
        for t, offset in zip(self.kept, offsets, strict=True):
            type = self._type(t)
            extent = evaluate(type.extent, sizes)
            flat = memory[offset:offset + extent * type.dtype.itemsize].view(type.dtype)
            made[t] = flat.as_strided(_ints(type.shape, sizes), _ints(type.strides, sizes))
        for t in self.views:
            base, offset = self.tensors.base(t)
            type = self._type(t)
            made[t] = made[base].as_strided(_ints(type.shape, sizes), _ints(type.strides, sizes),
                                            made[base].storage_offset() + evaluate(offset, sizes))
        if self.at_once:
            memory, look = recorded(len(self.sites))
            return [*made.values(), *self._spread(memory).values(), look]
        return list(made.values())

    # -- checks ----------------------------------------------------------------------------------------

    @property
    def at_once(self) -> bool:
        """Whether what checks find is looked at after each kernel: it is there then."""
        return any(self._type(t).device.type == "cpu" for t in self.tensors.checks)

    def _recorded(self, sites: Sequence[Site]) -> slice:
        """The places of a tensor that checks record in; each begins at a multiple of 16 bytes, as kernels like it."""
        start = len(self.sites)
        self.sites += [*sites, *sites[-1:]] if len(sites) % 2 else sites
        return slice(start, start + len(sites))

    def _spread(self, memory: torch.Tensor) -> dict[int, torch.Tensor]:
        """The tensors that checks record in, as parts of ``memory``."""
        return {t: memory[place] for t, place in self.places.items()}

    def _looked(self, step: Launch) -> list[str]:
        """Lines that raise what the checks of a kernel found."""
        places = [self.places[t] for t in step.tensors if t in self.places]
        found = [f"look[{k}]" for place in places for k in range(place.start, place.stop)]
        if not found or not self.at_once:
            return []
        return [f"    if {' or '.join(found)}:", f"        raise {self._name('outside', outside)}("
                f"{self._name('sites', self.sites)}, look, locals())"]

    def _settled(self) -> bool:
        """Whether a call begins and ends with a look at what checks found."""
        if not self.sites or self.at_once:
            return False
        memory, self.names["settle"] = settling(self.sites, self._type(next(iter(self.tensors.checks))).device)
        self.names |= {f"t{t}": part for t, part in self._spread(memory).items()}
        return True

    # -- the text --------------------------------------------------------------------------------------

    def build(self) -> Callable[..., tuple[Any, ...]]:
        self.views = self._views()
        body = [line for step in self.schedule.steps for line in self._step(step)]
        body += [line for o in self.tensors.outputs if isinstance(o, int) for line in self._bind(o)]
        results = [f"t{o}" if isinstance(o, int) else "None" if o is None else _text(o.expr)
                   for o in self.tensors.outputs]
        held = [f"t{t}" for t in (*self.kept, *self.views)]
        held += [*(f"t{t}" for t in self.tensors.checks), "look"] if self.at_once else []
        begin, end = (["    settle(False)"], ["    settle(True)"]) if self._settled() else ([], [])
        inputs = [f"t{i}" if isinstance(i, int) else f"n{k}" for k, i in enumerate(self.tensors.inputs)]
        text = [f"def run({_listed(inputs)}):", *begin, *self._solve(inputs),
                *([f"    arena = take({self._key()})", f"    {_listed(held)}= arena"] if held else []),
                *body, *end, f"    result = ({_listed(results)})",
                *([f"    give({self._key()}, arena)"] if held else []), "    return result", ""]
        arenas = _Arenas(self.arena)
        self.names |= {"take": arenas.take, "give": arenas.give}
        source = "\n".join(text)
        exec(compile(source, "<keel launch list>", "exec"), self.names)
        run: FunctionType = self.names["run"]
        run.__doc__ = source
        _with_room(run)
        return run

    def _views(self) -> list[int]:
        """Tensors inside kept ones that library calls take."""
        kept = set(self.kept)
        used = [t for s in self.schedule.steps if isinstance(s, External) for t in s.operands]
        early = set(self.early)
        return [t for t in dict.fromkeys(used) if t not in kept and self.tensors.base(t)[0] in kept
                and early.issuperset((*self._type(t).symbols, *symbols_of([self.tensors.base(t)[1]])))]

    def _symbols(self) -> tuple[str, ...]:
        dims: list[Dim] = [d for t in self.tensors.tensors for d in (*t.type.shape, *t.type.strides)]
        dims += [t.alias[1] for t in self.tensors.tensors if t.alias]
        dims += [v.expr for v in (*self.tensors.inputs, *self.tensors.outputs) if isinstance(v, SymType)]
        for step in self.schedule.steps:
            if isinstance(step, External):
                dims += [v.expr for v in _leaves((step.args, tuple(step.kwargs.values()))) if isinstance(v, SymType)]
        return symbols_of(dims)

    def _early(self) -> tuple[str, ...]:
        """The symbols that inputs tell."""
        self._solve([f"t{i}" if isinstance(i, int) else f"n{k}" for k, i in enumerate(self.tensors.inputs)])
        return tuple(s for s in self.symbols if s in self.told)

    def _solve(self, inputs: Sequence[str]) -> list[str]:
        """Lines that bind each symbol to an input's value or to a size of one."""
        found = self.told = dict[str, str]()
        for name, value in zip(inputs, self.tensors.inputs, strict=True):
            if isinstance(value, SymType) and isinstance(value.expr, sympy.Symbol):
                found.setdefault(str(value.expr), name)
        for name, value in zip(inputs, self.tensors.inputs, strict=True):
            if isinstance(value, int):
                type = self._type(value)
                for source, dims in (("size", type.shape), ("stride", type.strides)):
                    for k, d in enumerate(dims):
                        if isinstance(d, sympy.Symbol):
                            found.setdefault(str(d), f"{name}.{source}({k})")
        lines = [f"    {s} = {found[s]}" for s in self.symbols if s in found]
        numbers = [(name, value.expr) for name, value in zip(inputs, self.tensors.inputs, strict=True)
                   if isinstance(value, SymType)]
        sizes = [(f"{name}.size({k})", d) for name, value in zip(inputs, self.tensors.inputs, strict=True)
                 if isinstance(value, int) for k, d in enumerate(self._type(value).shape)]
        for source, d in (*numbers, *sizes):                  # a size may be a multiple of what is looked for
            if (solved := _linear(d, set(found))) is not None:
                symbol, factor, rest = solved
                found[symbol] = source
                lines.append(f"    {symbol} = ({source} - {_text(rest)}) // {_text(factor)}")
        later = symbols_of(d for s in self.schedule.steps if isinstance(s, External) for t in s.results if t >= 0
                           for d in (*self._type(t).shape, *self._type(t).strides))
        if missing := [s for s in self.symbols if s not in found and s not in later]:
            raise KeelError("bad-graph", f"No input of the part tells the size {missing[0]}.")
        return lines

    def _tell(self, tensor: int) -> list[str]:
        """Lines that bind the symbols that a library's result is the first to tell."""
        lines = []
        for k, d in enumerate(self._type(tensor).shape):
            if (solved := _linear(d, set(self.told))) is not None:
                symbol, factor, rest = solved
                self.told[symbol] = f"t{tensor}"
                lines.append(f"    {symbol} = (t{tensor}.size({k}) - {_text(rest)}) // {_text(factor)}")
        return lines

    def _key(self) -> str:
        return f"({_listed(self.early)})"

    def _step(self, step: Launch | External) -> list[str]:
        if isinstance(step, Launch):
            lines = [line for t in step.writes for line in self._allocate(t)]
            name = self._name(step.kernel.name, self.launchers[step.kernel])
            args = [*(f"t{t}" for t in step.tensors), *step.kernel.symbols]
            return [*lines, f"    {name}({', '.join(args)})", *self._looked(step)]
        lines = [line for t in step.operands for line in self._bind(t)]
        args = [*map(self._arg, step.args), *(f"{k}={self._arg(v)}" for k, v in step.kwargs.items())]
        if _fills(step):
            lines += [line for t in step.results for line in self._allocate(t)]
            name = self._name("out", step.extern.out)
            return [*lines, f"    {name}({', '.join([*args, f'out=t{step.results[0]}'])})"]
        name = self._name("call", step.extern.run)
        self.bound |= set(step.results)
        targets = ", ".join("_" if t < 0 else f"t{t}" for t in step.results)
        told = [line for t in step.results if t >= 0 for line in self._tell(t)]
        fits = [f"    t{t} = fit(t{t}, {_tuple(self._type(t).strides)})" for t in step.results if t >= 0]
        return [*lines, f"    {targets} = {name}({', '.join(args)})", *told, *fits]

    def _allocate(self, tensor: int) -> list[str]:
        if tensor in self.bound or tensor in set(self.kept):
            return []
        self.bound.add(tensor)
        t = self._type(tensor)
        dtype, device = self._name("dtype", t.dtype), self._name("device", t.device)
        where = f"dtype={dtype}, device={device}"
        return [f"    t{tensor} = empty_strided({_tuple(t.shape)}, {_tuple(t.strides)}, {where})"]

    def _bind(self, tensor: int) -> list[str]:
        """Lines that make a variable for a tensor that is a view of another."""
        if tensor in self.bound or tensor in self.views or tensor in self.kept:
            return []
        self.bound.add(tensor)
        base, offset = self.tensors.base(tensor)
        t = self._type(tensor)
        where = "" if offset == 0 else f", t{base}.storage_offset() + {_text(offset)}"
        return [f"    t{tensor} = as_strided(t{base}, {_tuple(t.shape)}, {_tuple(t.strides)}{where})"]

    def _arg(self, value: Any) -> str:
        if isinstance(value, Slot):
            return f"t{value.number}"
        if isinstance(value, SymType):
            return python_text(value.expr, kind=value.kind)
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._arg, value))}]"
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        return self._name("constant", value)

    def _name(self, stem: str, value: Any) -> str:
        """A global of the text that holds ``value``."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name


class _Arenas:
    """Arenas by sizes, each lent to one call at a time; the sizes used least recently are let go."""

    def __init__(self, make: Callable[[tuple[int, ...]], list[Any]]):
        self.make = make
        self.free: OrderedDict[tuple[int, ...], list[list[Any]]] = OrderedDict()

    def take(self, key: tuple[int, ...]) -> list[Any]:
        try:
            return self.free[key].pop()
        except (KeyError, IndexError):
            return self.make(key)

    def give(self, key: tuple[int, ...], arena: list[Any]) -> None:
        if key not in self.free:
            if len(self.free) >= BINDINGS:
                self.free.popitem(last=False)
            self.free[key] = []
        self.free[key].append(arena)


def _fills(step: External) -> bool:
    """Whether the library call writes its one result into memory that it is given."""
    return step.extern.out is not None and len(step.results) == 1


def fit(tensor: torch.Tensor | None, strides: tuple[int, ...]) -> torch.Tensor | None:
    """``tensor`` itself if it lies as promised, else a copy that does: a library may choose its own layout.

    None is what a library gives for a result that nobody asked it for.
    """
    if tensor is None or tensor.stride() == strides or tensor.numel() == 0:
        return tensor
    if all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    one = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)    # of elements in one place all are the same
    part = tensor[one]
    made = torch.empty_strided(part.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(part)
    return made.expand(tensor.shape)


def _linear(expr: Dim, known: set[str]) -> tuple[str, Dim, Dim] | None:
    """(symbol, factor, rest) with expr = factor * symbol + rest, if just one symbol is not known and it occurs so."""
    unknown = [s for s in symbols_of([expr]) if s not in known]
    if isinstance(expr, int) or len(unknown) != 1:
        return None
    (symbol,) = (s for s in expr.free_symbols if str(s) == unknown[0])
    factor = as_dim(sympy.diff(expr, symbol)) if expr.is_polynomial(symbol) else 0
    rest = as_dim(sympy.expand(expr - factor * symbol))
    return (unknown[0], factor, rest) if factor != 0 and unknown[0] not in symbols_of([factor, rest]) else None


def _ints(dims: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(d, sizes) for d in dims)


def _text(dim: Dim) -> str:
    """A size as a Python expression over its symbols."""
    return python_text(dim)


def _tuple(dims: Sequence[Dim]) -> str:
    return f"({_listed(map(_text, dims))})"


def _listed(names: Iterable[str]) -> str:
    return "".join(f"{name}, " for name in names)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]
