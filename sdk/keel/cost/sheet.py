"""A backend's data sheet: the cost of work on it, as data. A vendor writes it from a product brief, or ``keel bench
--calibrate`` measures it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import torch

from keel.cost.work import call_kinds
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
from keel.spec import MEMBERS
from keel.torch_adapter import registered_names
from keel.types import DTYPE_NAMES, DTYPES_BY_NAME, Call

LONGEST, SLOWEST = 1e30, 1e-30
"""The upper limit of seconds and factors, and the lower limit of rates, so that their sums and products are finite."""


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
    """Calls that a backend runs as one kernel. Each is the only reader of the one before.

    ``names`` give the overload, packet, kind or tag of each call, in order. The pattern saves ``seconds`` or, by
    default, the estimate of the roofline: its intermediate tensors stay out of memory, and all its calls count as one.
    """

    names: tuple[str, ...]
    seconds: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", texts("A Pattern", "names", self.names, "aten.mm"))
        checked_operators("A Pattern", "names", self.names, families=call_kinds())
        if self.seconds is not None:
            checked_number("A Pattern", "seconds", self.seconds, most=LONGEST)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A data sheet.  Rates are per second, as reached in practice, not the peaks of a brochure.

    ``flops`` are floating-point operations of contractions by the dtype of their first operand; a dtype that is missing
    runs at the slowest rate given. ``scalars`` are elements of other operators, ``bandwidth`` bytes of the device's
    memory. ``launch`` are seconds to enter a compiled part, ``call`` seconds each call of an operator takes besides. A
    backend that ``fuses`` keeps out of memory what it passes between calls that fit into one loop (elementwise ones,
    reductions, moves; see ``work.fusable``). ``link`` leads from the memory where the tensors of its parts are to the
    memory where it computes; None: it computes where they are. ``memory`` are bytes.

    ``weights`` multiply the time by ``flops`` or ``scalars`` for an operator. The operator is given by overload
    (``aten.mm.default``), packet (``aten.mm``), kind (see ``work.named``) or tag of the operator set (``convolution``).
    ``passes`` multiply the traffic: how often tensors go through memory. One pass overlaps the arithmetic; further
    passes come before and after it, in libraries that use a layout of their own. If loops are fused, ``passes`` apply
    only to calls that are not loops. ``border`` is for a backend that keeps images (tensors of four dimensions and
    more, in graphs with convolutions) in a layout of its own: how often they also go through memory when they come from
    or go to another backend, or when the graph returns them. ``copies`` is the same for all tensors, for a backend that
    copies its operands in and its results out. ``seconds`` overrides the estimate, by overload or packet: a number of
    seconds, or a function of the call. If the call is fused, its memory traffic is added.

    ``patterns`` are runs of calls that the backend also runs as one (a product and its epilogue, a product of quantized
    operands). A call is in one pattern at most; of several that begin at a call, the first counts.

    ``doubt`` is the fraction, below 1, by which calls in a model may take more or less than the sheet says. Backends
    are mixed only if that saves time for every error of this size.
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
            values = table(what, name, getattr(self, name), "operator")
            checked_operators(what, name, values, families=call_kinds())
            for operator, number in values.items():
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
        """Parses the result of ``as_json``. Raises KeelError[bad-text] for anything else."""
        try:
            return _sheet(Item(parsed(text)))
        except Malformed as e:
            raise KeelError("bad-text", "a data sheet cannot be read", {e.place or "json": e.why}, do=_SHEET) from e


_SHEET = "Write one with keel bench --calibrate and change that."


def _sheet(item: Item) -> Cost:
    """A data sheet from data.  Raises Malformed."""
    numbers, tables = ("launch", "call", "border", "copies", "doubt"), ("weights", "passes", "seconds")
    record = item.record(("flops", "scalars", "bandwidth"), (*numbers, *tables, "fuses", "link", "memory", "patterns"))
    flops = record["flops"].table(64)
    for name, rate in flops.items():
        if name not in DTYPES_BY_NAME:
            rate.refuse(f"{shown(name)} is not a dtype: {', '.join(DTYPES_BY_NAME)}.")
    fields: dict[str, Any] = {k: record[k].number() for k in ("scalars", "bandwidth", *numbers) if k in record}
    for name in (t for t in tables if t in record):
        entries = record[name].table(1 << 12)
        for operator in entries:
            _check_operator(record[name], operator, kinds=name != "seconds")
        fields[name] = {k: v.number() for k, v in entries.items()}
    if "fuses" in record:
        fields["fuses"] = record["fuses"].flag()
    if "memory" in record and record["memory"].value is not None:
        fields["memory"] = record["memory"].number()
    try:
        if "link" in record and record["link"].value is not None:
            fields["link"] = Link(**{k: v.number() for k, v in record["link"].record(("bandwidth", "latency")).items()})
        patterns = record["patterns"].items(1 << 12) if "patterns" in record else ()
        return Cost(
            flops={DTYPES_BY_NAME[name]: rate.number() for name, rate in flops.items()},
            patterns=tuple(map(_pattern, patterns)),
            **fields,
        )
    except KeelError as e:
        raise Malformed(item.place, e.what) from e


def _check_operator(item: Item, name: str, *, kinds: bool = True) -> None:
    """Raises Malformed unless ``name`` is an operator of the operator set or of a registered library, or a kind.
    Imports nothing, unless it has to suggest a name.
    """
    if (
        not (kinds and name in call_kinds())
        and name not in _members()
        and not any(name in (full, full.rpartition(".")[0]) for full in registered_names())
    ):
        item.refuse(f"{shown(name)} is neither an operator of this PyTorch nor a kind of operator.")


@cache
def _members() -> frozenset[str]:
    overloads = {name for member in MEMBERS.values() for name in member.overloads}
    return frozenset(overloads | {name.rpartition(".")[0] for name in overloads})


def _pattern(item: Item) -> Pattern:
    record = item.record(("names", "seconds"))
    names = tuple(name.text(100) for name in record["names"].items(64))
    for name in names:
        _check_operator(record["names"], name)
    return Pattern(names, None if record["seconds"].value is None else record["seconds"].number())


def read_sheets(path: str | os.PathLike[str]) -> dict[str, Cost]:
    """The data sheets of backends, by name, of a file that ``keel bench --calibrate`` wrote.

    Raises KeelError[bad-file] for any other file, with the place and the mistake, and KeelError[bad-option] if the file
    does not exist.
    """
    try:
        record = Item(parsed(text_of(path))).record(("sheets",), ("machine",))
        return {name: _sheet(sheet) for name, sheet in record["sheets"].table(1 << 10).items()}
    except Malformed as e:
        raise bad_file(path, e, what="It holds no data sheets.", do="Write it with keel bench --calibrate.") from e


def slowed(cost: Cost, by: float) -> Cost:
    """The sheet of a backend on which everything takes ``by`` times as long, within the limits of sheets."""

    def time(seconds: float) -> float:
        return min(by * seconds, LONGEST)

    def rate(per_second: float) -> float:
        return max(per_second / by, SLOWEST)

    def longer(seconds: float | Callable[[Call], float]) -> float | Callable[[Call], float]:
        return (lambda call: time(seconds(call))) if callable(seconds) else time(seconds)

    return replace(
        cost,
        flops={d: rate(per_second) for d, per_second in cost.flops.items()},
        scalars=rate(cost.scalars),
        bandwidth=rate(cost.bandwidth),
        launch=time(cost.launch),
        call=time(cost.call),
        link=None if cost.link is None else Link(rate(cost.link.bandwidth), time(cost.link.latency)),
        patterns=tuple(p if p.seconds is None else replace(p, seconds=time(p.seconds)) for p in cost.patterns),
        seconds={name: longer(seconds) for name, seconds in cost.seconds.items()},
    )
