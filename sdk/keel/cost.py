"""What work costs: a backend's data sheet, and the time of a call by its roofline.

A call takes the longer of its arithmetic and its traffic with memory (Williams, Waterman and Patterson, "Roofline",
2009).  The sheet is data: a vendor copies it from a product brief, or ``keel bench --calibrate`` measures it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from keel.documents import Item, Malformed, bad_file, parsed, shown, text_of
from keel.errors import KeelError
from keel.registration import (
    bad,
    checked_call,
    checked_dtype,
    checked_flag,
    checked_number,
    checked_operators,
    checked_type,
    table,
    texts,
)
from keel.spec import MEMBERS, OPSET, bind
from keel.torch_adapter import registered_names
from keel.types import DTYPE_NAMES, DTYPES_BY_NAME, Call, Dim, SymType, TensorType, leaves

__all__ = ["Cost", "Link", "Pattern", "Price", "price", "read_sheets"]

UNKNOWN = 1024
"""What a size counts as of which nothing is known."""

IMAGE = 4
"""The dimensions of images, batch and channels among them, at least."""

Sizes = Mapping[str, int]
"""Typical values of size symbols, by name."""


LONGEST, SLOWEST = 1e30, 1e-30
"""Seconds and factors of a data sheet are at most, and rates at least, such that sums and products of them stay finite
numbers."""


def _rate(what: str, field: str, value: float) -> None:
    checked_number(what, field, value, above=True)
    checked_number(what, field, value, least=SLOWEST)


@dataclass(frozen=True)
class Link:
    """How a device exchanges tensors with host memory: bytes per second, and seconds for the first byte."""

    bandwidth: float
    latency: float

    def __post_init__(self) -> None:
        _rate("A Link", "bandwidth", self.bandwidth)
        checked_number("A Link", "latency", self.latency, most=LONGEST)


@dataclass(frozen=True)
class Pattern:
    """Calls that a backend runs as one where it has all of them: each is the only reader of the one before.

    ``names`` say of each call, in order, its overload, packet, kind or tag.  It saves ``seconds``, or, by default, what
    the roofline says: what passes between its calls stays out of memory, and all of them are one call.
    """

    names: tuple[str, ...]
    seconds: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", texts("A Pattern", "names", self.names, "aten.mm"))
        checked_operators("A Pattern", "names", self.names, families=_kinds())
        if self.seconds is not None:
            checked_number("A Pattern", "seconds", self.seconds, most=LONGEST)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A data sheet.  Rates are per second and what is reached in practice, not the peak of a brochure.

    ``flops`` are floating-point operations of contractions by the dtype of their first operand; a dtype that is not
    there goes at the slowest rate that is.  ``scalars`` are elements of other operators, ``bandwidth`` bytes of the
    device's memory.  ``launch`` are seconds to enter a compiled part, ``call`` seconds each call of an operator takes
    besides.  A backend that ``fuses`` keeps out of memory what it passes between calls that fit into one loop
    (elementwise ones, reductions, moves; see :func:`fusable`).  ``link`` leads from the memory where the tensors of its
    parts are to the memory where it computes; None: it computes where they are.  ``memory`` are bytes.

    ``weights`` say of operators, by overload (``aten.mm.default``), packet (``aten.mm``), kind (see :func:`named`) or
    tag of the operator set (``convolution``), how many times as long as by ``flops`` or ``scalars`` they take.
    ``passes`` say so of traffic: how often tensors go through memory, once beside the arithmetic, and else before and
    after it, by libraries that bring them into a layout of their own; where loops are fused, of calls that are none.
    ``border`` says how often images (tensors of four dimensions and more, in graphs with convolutions) go through
    memory besides where they come from or go to another backend, or the graph returns them: by one that keeps them in a
    layout of its own.  ``copies`` says so of all tensors: by one that copies its operands in and its results out.
    ``seconds`` overrides the estimate, by overload or packet: a number of seconds, or a function of the call; where the
    call is fused, besides its traffic with memory.

    ``patterns`` are what it runs as one besides such loops (a product and what follows it, a product of quantised
    operands), the first that a call begins counting, and a call in one of them at most.

    ``doubt`` is the share, below 1, by which calls in a model take more or less than all that says.  Backends are mixed
    only where that saves time however far their sheets are off by that much.
    """

    flops: Mapping[torch.dtype, float]
    scalars: float
    bandwidth: float
    launch: float = 0.0
    call: float = 0.0
    fuses: bool = False
    link: Link | None = None
    memory: float = math.inf
    weights: Mapping[str, float] = field(default_factory=dict)
    passes: Mapping[str, float] = field(default_factory=dict)
    border: float = 0.0
    copies: float = 0.0
    patterns: tuple[Pattern, ...] = ()
    seconds: Mapping[str, float | Callable[[Call], float]] = field(default_factory=dict)
    doubt: float = 0.2

    def __post_init__(self) -> None:
        what = "A data sheet"
        for dtype, rate in table(what, "flops", self.flops, "torch.dtype").items():
            checked_dtype(what, "flops", dtype)
            _rate(what, f"flops[{dtype}]", rate)
        for name in ("scalars", "bandwidth"):
            _rate(what, name, getattr(self, name))
        checked_number(what, "memory", self.memory, above=True)
        for name in ("launch", "call", "border", "copies"):
            checked_number(what, name, getattr(self, name), most=LONGEST)
        for name in ("weights", "passes"):
            given = table(what, name, getattr(self, name), "operator")
            checked_operators(what, name, given, families=_kinds())
            for operator, number in given.items():
                checked_number(what, f"{name}[{operator!r}]", number, most=LONGEST)
        checked_operators(what, "seconds", table(what, "seconds", self.seconds, "operator"))
        for operator, seconds in self.seconds.items():
            if callable(seconds):
                checked_call(what, f"seconds[{operator!r}]", seconds, "it takes a Call, and returns seconds", takes=1)
            else:
                checked_number(what, f"seconds[{operator!r}]", seconds, most=LONGEST)
        checked_flag(what, "fuses", self.fuses)
        checked_type(what, "link", self.link, (Link, type(None)), "keel.cost.Link(bandwidth, latency), or leave it out")
        checked_type(what, "patterns", self.patterns, (tuple, list), "a tuple of Pattern values")
        for pattern in self.patterns:
            checked_type(what, "patterns", pattern, Pattern, "rows that are Pattern values")
        checked_number(what, "doubt", self.doubt)
        if self.doubt >= 1:
            bad(
                f"A data sheet has a doubt of {self.doubt}.",
                "Write the share by which calls take more or less than it says, at least 0 and below 1.",
            )

    def as_json(self) -> dict[str, Any]:
        """The sheet as plain data, without overrides that are functions."""
        plain = {k: v for k, v in self.seconds.items() if not callable(v)}
        return {
            "flops": {DTYPE_NAMES[d]: rate for d, rate in self.flops.items()},
            "scalars": self.scalars,
            "bandwidth": self.bandwidth,
            "launch": self.launch,
            "call": self.call,
            "fuses": self.fuses,
            "link": None if self.link is None else asdict(self.link),
            "memory": None if math.isinf(self.memory) else self.memory,
            "weights": dict(self.weights),
            "passes": dict(self.passes),
            "border": self.border,
            "copies": self.copies,
            "seconds": plain,
            "doubt": self.doubt,
            "patterns": [{"names": list(p.names), "seconds": p.seconds} for p in self.patterns],
        }

    @staticmethod
    def from_json(text: str) -> Cost:
        """Raises KeelError[bad-text] for anything but what ``as_json`` gives."""
        try:
            return _sheet(Item(parsed(text)))
        except Malformed as e:
            raise KeelError("bad-text", "a data sheet cannot be read", {e.place or "json": e.why}, do=_SHEET) from e


_SHEET = "Write one with keel bench --calibrate and change that."


def _sheet(item: Item) -> Cost:
    """A data sheet from data.  Raises Malformed."""
    numbers, tables = ("launch", "call", "border", "copies", "doubt"), ("weights", "passes", "seconds")
    said = item.record(("flops", "scalars", "bandwidth"), (*numbers, *tables, "fuses", "link", "memory", "patterns"))
    flops = said["flops"].table(64)
    for name, rate in flops.items():
        if name not in DTYPES_BY_NAME:
            rate.refuse(f"{shown(name)} is no dtype: {', '.join(DTYPES_BY_NAME)}.")
    fields: dict[str, Any] = {k: said[k].number() for k in ("scalars", "bandwidth", *numbers) if k in said}
    for name in (t for t in tables if t in said):
        entries = said[name].table(1 << 12)
        for operator in entries:
            _check_operator(said[name], operator, kinds=name != "seconds")
        fields[name] = {k: v.number() for k, v in entries.items()}
    if "fuses" in said:
        fields["fuses"] = said["fuses"].flag()
    if "memory" in said and said["memory"].value is not None:
        fields["memory"] = said["memory"].number()
    try:
        if "link" in said and said["link"].value is not None:
            fields["link"] = Link(**{k: v.number() for k, v in said["link"].record(("bandwidth", "latency")).items()})
        patterns = said["patterns"].items(1 << 12) if "patterns" in said else ()
        return Cost(
            flops={DTYPES_BY_NAME[name]: rate.number() for name, rate in flops.items()},
            patterns=tuple(map(_pattern, patterns)),
            **fields,
        )
    except KeelError as e:
        raise Malformed(item.place, e.what) from e


def _check_operator(item: Item, name: str, *, kinds: bool = True) -> None:
    """Raises Malformed for what is neither an operator of the set or of a library that is registered, nor a kind.

    It imports nothing; to find out what somebody may have meant does.
    """
    if (
        not (kinds and name in _kinds())
        and name not in _members()
        and not any(name in (full, full.rpartition(".")[0]) for full in registered_names())
    ):
        item.refuse(f"{shown(name)} is no operator that PyTorch has here, and no kind of one.")


@cache
def _members() -> frozenset[str]:
    overloads = {name for member in MEMBERS.values() for name in member.overloads}
    return frozenset(overloads | {name.rpartition(".")[0] for name in overloads})


def _pattern(item: Item) -> Pattern:
    said = item.record(("names", "seconds"))
    names = tuple(name.text(100) for name in said["names"].items(64))
    for name in names:
        _check_operator(said["names"], name)
    return Pattern(names, None if said["seconds"].value is None else said["seconds"].number())


@dataclass(frozen=True)
class Work:
    """What a call does: floating-point operations of contractions, elements of anything else, and the bytes of each
    tensor that it reads and writes, in the order of its arguments and results.
    """

    dtype: torch.dtype
    flops: float
    scalars: float
    read: tuple[float, ...]
    written: tuple[float, ...]


@dataclass(frozen=True)
class Price:
    """Seconds: of a call by itself, and of each tensor that it reads and writes where that passes through memory and is
    not in ``alone`` already, in the order of its tensor arguments and results.
    """

    alone: float
    read: tuple[float, ...]
    written: tuple[float, ...]


def price(call: Call, cost: Cost, sizes: Sizes = MappingProxyType({}), pieces: Sequence[Call] = ()) -> Price:
    """The seconds of ``call`` on a backend of that sheet.

    A composite may be given with its ``pieces``: then its arithmetic is theirs, unless the sheet says of it by name
    what it takes.
    """
    work = work_of(call, sizes)
    nothing = Price(0.0, (0.0,) * len(work.read), (0.0,) * len(work.written))
    if is_free(call):
        return nothing
    alone, given = _busy(call, cost, sizes, pieces)
    if cost.fuses and fusable(call):
        picked = _picked(call)
        alone += sum(work.read[i] for i in picked) / cost.bandwidth
        return Price(
            alone,
            tuple(0.0 if i in picked else b / cost.bandwidth for i, b in enumerate(work.read)),
            tuple(b / cost.bandwidth for b in work.written),
        )
    traffic, again = _passing(sum(work.read) + sum(work.written), call, cost)
    return replace(nothing, alone=alone if given else max(alone, traffic) + again + cost.call)


@dataclass(frozen=True)
class InChain:
    """A call of a pattern: which of its tensor arguments the call before it gives, and its pieces (see ``price``)."""

    call: Call
    inner: tuple[int, ...]
    pieces: Sequence[Call] = ()


def saved(chain: Sequence[InChain], pattern: Pattern, cost: Cost, sizes: Sizes = MappingProxyType({})) -> float:
    """The seconds that a backend of that sheet saves by running calls as one: what they and the tensors between them
    take one by one, less the longer of all their arithmetic and of what they read and write besides.

    Calls that are loops of a backend that fuses pay for no more than their arithmetic already, and go on doing so.
    """
    apart = busy = traffic = again = 0.0
    before: tuple[bool, Price] | None = None
    for i, link in enumerate(chain):
        own, work = price(link.call, cost, sizes, link.pieces), work_of(link.call, sizes)
        loop = cost.fuses and fusable(link.call)
        apart += own.alone
        if before is not None and before[0] != loop:  # what loops pass on is charged by tensor
            apart += max((own.read[j] for j in link.inner), default=0.0) if loop else sum(before[1].written)
        busy += own.alone if loop else _busy(link.call, cost, sizes, link.pieces)[0]
        if not loop:
            outer = sum(b for j, b in enumerate(work.read) if j not in link.inner)
            outer += sum(work.written) if i == len(chain) - 1 else 0.0
            passing = _passing(outer, link.call, cost)
            traffic, again = traffic + passing[0], again + passing[1]
        before = loop, own
    if pattern.seconds is not None:
        return min(pattern.seconds, apart)
    return max(apart - max(busy, traffic) - again - cost.call, 0.0)


def read_sheets(path: str | os.PathLike[str]) -> dict[str, Cost]:
    """The data sheets of backends, by name, of a file that ``keel bench --calibrate`` wrote.

    Raises KeelError[bad-file] for anything else, with the place and what is wrong there, and KeelError[bad-option]
    where there is no file.
    """
    try:
        said = Item(parsed(text_of(path))).record(("sheets",), ("machine",))
        return {name: _sheet(sheet) for name, sheet in said["sheets"].table(1 << 10).items()}
    except Malformed as e:
        raise bad_file(path, e, what="It holds no data sheets.", do="Write it with keel bench --calibrate.") from e


def slowed(cost: Cost, by: float) -> Cost:
    """The sheet of a backend on which all takes ``by`` times as long, within what sheets may say."""

    def time(given: float) -> float:
        return min(by * given, LONGEST)

    def rate(given: float) -> float:
        return max(given / by, SLOWEST)

    def longer(given: float | Callable[[Call], float]) -> float | Callable[[Call], float]:
        return (lambda call: time(given(call))) if callable(given) else time(given)

    return replace(
        cost,
        flops={d: rate(given) for d, given in cost.flops.items()},
        scalars=rate(cost.scalars),
        bandwidth=rate(cost.bandwidth),
        launch=time(cost.launch),
        call=time(cost.call),
        link=None if cost.link is None else Link(rate(cost.link.bandwidth), time(cost.link.latency)),
        patterns=tuple(p if p.seconds is None else replace(p, seconds=time(p.seconds)) for p in cost.patterns),
        seconds={name: longer(given) for name, given in cost.seconds.items()},
    )


def crossing(there: Cost, here: Cost, amount: float) -> float:
    """The seconds that ``amount`` bytes take from one device's memory to another's, through the host's."""
    links = [c.link for c in (there, here) if c.link is not None]
    return sum(link.latency + amount / link.bandwidth for link in links)


# -- work -------------------------------------------------------------------------------------------------------------


def work_of(call: Call, sizes: Sizes = MappingProxyType({})) -> Work:
    """The work of ``call``, where a symbol that ``sizes`` does not have counts as ``UNKNOWN``.

    Of an operand that is read at places which are data, so much is read as there are places, and one that is changed at
    such places is work for those: the rest is copied, which is traffic.
    """
    results = [t for t in call.out if isinstance(t, TensorType)]
    dtype = next((t.dtype for t in (*call.tensors, *results)), torch.float32)
    flops, places, picked = _flops(call, sizes), _places(call, sizes), _picked(call)
    read = [size_of(t, sizes) for t in call.tensors]
    for i in picked:
        read[i] = min(read[i], places * call.tensors[i].dtype.itemsize)
    most = max((elements(t, sizes) for t in (*call.tensors, *results)), default=0.0)
    scalars = most * _weight(call, most) if math.isnan(places) else places
    if _tagged(call, "pooling"):
        scalars = max(most, _window(call) * sum(elements(t, sizes) for t in results[:1]))
    return Work(
        dtype,
        flops or 0.0,
        0.0 if flops is not None else scalars,
        tuple(read),
        tuple(size_of(t, sizes) for t in results),
    )


def picks(call: Call) -> str | None:
    """The parameter that is read at places which are data and nowhere else: what is fused reads it from memory."""
    member = OPSET.get(call.op)
    return None if member is None or member.places is None else member.places.of


def _picked(call: Call) -> tuple[int, ...]:
    """The tensors among the call's that are read so."""
    name = picks(call)
    given = None if name is None else bind(call)[name]
    return tuple(i for i, t in enumerate(call.tensors) if t is given)[:1]


def _places(call: Call, sizes: Sizes) -> float:
    """How many elements the call reads or writes at places that are data; NaN: that is not said."""
    member = OPSET.get(call.op)
    if member is None or member.places is None:
        return math.nan
    if member.places.count is not None:
        return math.prod(float(value_of(n, sizes)) for n in member.places.count.of(bind(call)))
    return sum(elements(t, sizes) for t in call.out[:1] if isinstance(t, TensorType))


def elements(t: TensorType, sizes: Sizes) -> float:
    """How many elements a tensor has; one that is expanded, how many it has in memory."""
    return math.prod(float(value_of(n, sizes)) for n, s in zip(t.shape, t.strides, strict=True) if s != 0)


def size_of(t: TensorType, sizes: Sizes) -> float:
    """The bytes that reading a tensor moves."""
    return elements(t, sizes) * t.dtype.itemsize


def value_of(dim: Dim, sizes: Sizes) -> int:
    """The number that a size stands for."""
    if isinstance(dim, int):
        return dim
    return max(int(dim.subs({s: sizes.get(str(s), UNKNOWN) for s in dim.free_symbols})), 0)


def _flops(call: Call, sizes: Sizes) -> float | None:
    """Of matrix products, convolutions and attention by PyTorch's formulas; of factorisations and transforms by the
    usual counts (Golub and Van Loan, "Matrix Computations", 4th edition; Cooley and Tukey, 1965). None: not counted so.
    """
    from torch.utils.flop_counter import flop_registry  # which imports Triton, where there is one

    if call.name in _GRADIENTS:
        return _gradients(call, sizes)
    formula = flop_registry.get(getattr(call.op, "overloadpacket", None))
    if formula is not None:
        args = [_shape(a, sizes) for a in call.args]
        out = tuple(_shape(t, sizes) for t in call.out)
        try:
            return float(
                formula(
                    *args,
                    **{k: _shape(v, sizes) for k, v in call.kwargs.items()},
                    out_val=out[0] if len(out) == 1 else out,
                )
            )
        except (AssertionError, TypeError, ValueError, IndexError, AttributeError):
            return None  # of a form of the call that the formula does not know
    member = OPSET.get(call.op)
    if member is not None and member.factors is not None and call.tensors and call.tensors[0].rank >= 2:
        *batch, m, n = (value_of(d, sizes) for d in call.tensors[0].shape)
        return member.factors * math.prod(batch) * m * n * min(m, n)
    if call.name.startswith("aten._fft_") and call.tensors:
        t = call.tensors[0]
        along = math.prod(value_of(t.shape[d], sizes) for d in call.args[1])
        return 5.0 * elements(t, sizes) * math.log2(max(along, 2))
    return None


def _gradients(call: Call, sizes: Sizes) -> float:
    """Of a convolution's gradients, each takes as many as the convolution.  (PyTorch's formula counts each group's
    channels as all.)"""
    args = bind(call)
    out, weight = args["grad_output"], args["weight"]
    if args["transposed"]:
        out = args["input"]
    assert isinstance(out, TensorType) and isinstance(weight, TensorType)
    each = 2 * elements(out, sizes) * elements(weight, sizes) / max(value_of(weight.shape[0], sizes), 1)
    return each * sum(map(bool, args["output_mask"][:2]))


def _busy(call: Call, cost: Cost, sizes: Sizes, pieces: Sequence[Call]) -> tuple[float, bool]:
    """The seconds of a call's arithmetic, or what the sheet says that it takes, and whether it does."""
    packet = call.name.rpartition(".")[0]
    given = cost.seconds.get(call.name, cost.seconds.get(packet))
    if given is not None:
        return float(given(call) if callable(given) else given), True
    whole = not pieces or call.name in cost.weights or packet in cost.weights
    return sum(_arithmetic(c, cost, sizes) for c in ((call,) if whole else pieces)), False


def _arithmetic(call: Call, cost: Cost, sizes: Sizes) -> float:
    """The seconds of a call's operations, were its operands at hand."""
    if is_free(call):
        return 0.0
    work = work_of(call, sizes)
    rate = cost.flops.get(work.dtype) or min(cost.flops.values(), default=cost.scalars)
    return (work.flops / rate + work.scalars / cost.scalars) * _said(cost.weights, call)


def _passing(amount: float, call: Call, cost: Cost) -> tuple[float, float]:
    """The seconds that ``amount`` bytes go through memory, beside the arithmetic of the call and besides."""
    passes, seconds = _said(cost.passes, call), amount / cost.bandwidth
    return min(passes, 1.0) * seconds, max(passes - 1.0, 0.0) * seconds


def _said(table: Mapping[str, float], call: Call) -> float:
    """What a table of a sheet says of a call; 1 where it says nothing."""
    return next((table[name] for name in named(call) if name in table), 1.0) if table else 1.0


def named(call: Call) -> tuple[str, ...]:
    """The names by which a sheet may speak of a call, the most special first: its overload, its packet, its kind, and
    the tags of the operator set.

    Kinds are those of convolutions and of their gradients (which are ``backward`` too), by what a step of theirs
    shares: one is ``depthwise`` where each group has one channel, so that each element that is read serves one channel
    of results, and a multiplication takes as long as the reading; else ``pointwise`` where its window has one element,
    so that it is a matrix product; or ``grouped``.
    """
    member = OPSET.get(call.op)
    tags = sorted(member.tags if member is not None else ())
    kinds = _convolution(call) if "convolution" in tags else ()
    back = [f"{kind} backward" for kind in (*kinds, "convolution")] if call.name in _GRADIENTS else ()
    return call.name, call.name.rpartition(".")[0], *back, *kinds, *tags


@cache
def _kinds() -> frozenset[str]:
    """What ``named`` may say of a call besides its overload and its packet."""
    kinds = ("convolution", *(f"{kind} convolution" for kind in ("depthwise", "pointwise", "grouped")))
    return frozenset({*kinds, *(f"{kind} backward" for kind in kinds), *(t for m in MEMBERS.values() for t in m.tags)})


_GRADIENTS = frozenset({"aten.convolution_backward.default"})


def _convolution(call: Call) -> tuple[str, ...]:
    args = bind(call)
    weight = args.get("weight")
    if not isinstance(weight, TensorType) or weight.rank < 3:
        return ()
    if args.get("groups", 1) != 1:
        return ("depthwise convolution", "grouped convolution")[weight.shape[1] != 1 :]
    return ("pointwise convolution",) if all(n == 1 for n in weight.shape[2:]) else ()


def _shape(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, TensorType):
        return torch.Size([value_of(n, sizes) for n in value.shape])
    if isinstance(value, SymType):
        return value_of(value.expr, sizes) if value.kind == "int" else 1
    return type(value)(_shape(v, sizes) for v in value) if isinstance(value, list | tuple) else value


def _window(call: Call) -> float:
    """How many elements each of a pool's results is made of; 1 where that is not said."""
    return math.prod(float(n) for n in leaves([bind(call).get("kernel_size", 1)]) if isinstance(n, int))


def _weight(call: Call, most: float) -> float:
    """How much more an element takes than one of an addition."""
    return math.log2(max(most, 2.0)) if _tagged(call, "sort") else 1.0


def is_free(call: Call) -> bool:
    """Whether a call is no work wherever its operand is: a view."""
    return bool(getattr(call.op, "is_view", False))


def across(cost: Cost, image: bool) -> float:
    """The seconds by the byte of a tensor that comes from or goes to another backend."""
    return (cost.copies + (cost.border if image else 0.0)) / cost.bandwidth


def convolves(call: Call) -> bool:
    """Whether a call is a convolution or its gradient."""
    return _tagged(call, "convolution")


def fusable(call: Call) -> bool:
    """Whether a call is a loop over elements, which a backend that fuses runs in one with its neighbours."""
    member = OPSET.get(call.op)
    return member is not None and (not _LOOPS.isdisjoint(member.tags) or member.family in _LOOP_FAMILIES)


_LOOPS = frozenset({"pointwise", "creation", "reduction", "shape", "indexing", "random"})
_LOOP_FAMILIES = frozenset({"statistics", "normalisation", "batch norm", "losses"})


def _tagged(call: Call, tag: str) -> bool:
    member = OPSET.get(call.op)
    return member is not None and tag in member.tags
