"""What a vendor writes.  A backend is a value; a refusal is a sentence.

``Backend`` is the graph level: it claims operator calls and compiles graphs made of calls it claimed.  ``LoopTarget`` is
the loop level: tables and two functions, which ``keel.loop_backend`` turns into a Backend.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from keel.loops.ir import Kernel
from keel.types import Call, Dim, SymType

API = 1
"""The version of this page.  A new optional field does not raise it; a field that goes or changes its meaning does."""


@dataclass(frozen=True)
class Refusal:
    """Why a backend does not take a call: a full sentence that ends in a full stop and names the thing refused.

    ``nearest`` says which similar call it would take (``cast to f32``, ``a contiguous copy`` …), if it knows.
    """

    sentence: str
    nearest: str | None = None

    def __str__(self) -> str:
        return f"{self.sentence} It would take {self.nearest}." if self.nearest else self.sentence


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of a support table: which calls of ``ops`` are taken.  A field left at its default does not restrict.

    ``ops`` are overload names (``aten.mm.default``), packet names (``aten.mm``) or ``*``.  ``when`` is the escape hatch: None, or a
    sentence that says why not.
    """

    ops: tuple[str, ...]
    dtypes: frozenset[torch.dtype] | None = None
    ranks: tuple[int, int] | None = None                     # lowest and highest rank, inclusive
    contiguous: bool = False                                 # every tensor argument must be row-major without gaps
    static: bool = False                                     # every size must be known
    when: Callable[[Call], str | None] | None = None


@dataclass(frozen=True)
class Support:
    """What a graph-level backend takes, as data: a call is taken if one row takes it."""

    rules: tuple[Rule, ...]


Refuses = Callable[[Call], Refusal | str | None]


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A graph-level backend.

    ``compile`` gets a functional FX graph whose every node is an ATen overload with ``meta["val"]``, whose placeholders are the
    part's inputs (tensors, and ints where sizes are symbolic); it returns a callable that takes those positionally and returns
    a tuple of the graph's outputs.  It must not write to its inputs, and returns each output with the dtype, shape, strides
    and device of its ``meta["val"]``.
    """

    name: str
    device: str                                              # a torch device type: where its tensors live
    supports: Support | Refuses
    compile: Callable[[fx.GraphModule], Callable[..., Any]]
    probe: Callable[[], str | None] = lambda: None           # None, or the sentence that says why it cannot run here
    last_resort: bool = False                                # takes only what no other backend takes; never keeps a composite
    cost: Callable[[Call], float] | None = None              # seconds, by estimate; None: placed by order alone
    cache_key: Callable[[], str] | None = None               # changes whenever compiled parts must not be reused
    api: int = API


ScalarText = str | Callable[..., str]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What kernels a loop target can be given."""

    max_buffers: int = 64                                    # buffers per kernel
    max_rank: int = 8                                        # axes per loop nest
    atomics: frozenset[str] = frozenset({"add"})             # store modes beside write
    vector: int = 1                                          # lanes worth having in the innermost axis
    parallel: int = 1                                        # independent iterations that fill the machine


@dataclass(frozen=True, kw_only=True)
class Extern:
    """An operator that a loop target does by a library call: contraction, convolution, sort …

    ``run`` takes the call's arguments (tensors for tensors) and returns fresh output tensors; ``out``, if given, takes the same and
    ``out=`` a tensor to fill (which may be any dense strided view).  ``refuse`` restricts which calls are taken.
    """

    run: Callable[..., Any]
    out: Callable[..., Any] | None = None
    refuse: Refuses | None = None


@dataclass(frozen=True)
class Source:
    """A rendered kernel, ready to be built."""

    kernel: Kernel
    text: str


Launcher = Callable[..., None]
"""Called with the kernel's buffers as tensors, in order, then its symbols as ints; writes the out buffers."""


@dataclass(frozen=True, kw_only=True)
class LoopTarget:
    """A loop-level backend: three tables and two functions.

    ``scalars`` gives the text of each scalar op, operands as ``{0} {1} …`` and the result's dtype name as ``{dtype}``; an op that
    is not in it is expanded by Keel into those that are.  ``reductions`` gives (identity, combination) per monoid, where the
    combination is a text over ``{0} {1}``; a monoid that is not in it is rendered from its steps.  The tables are what the
    target supports: nothing else is declared.  ``render`` is pure.  ``build`` gets all kernels of a graph at once and returns one
    launcher each.
    """

    name: str
    device: str
    dtypes: Mapping[torch.dtype, str]
    scalars: Mapping[str, ScalarText]
    reductions: Mapping[str, tuple[str, str]]
    render: Callable[[Kernel], str]
    build: Callable[[Sequence[Source]], Sequence[Launcher]]
    externs: Mapping[str, Extern] = field(default_factory=dict)   # by overload name
    limits: Limits = Limits()
    probe: Callable[[], str | None] = lambda: None
    cost: Callable[[Call], float] | None = None
    api: int = API


def refusal(backend: Backend, call: Call) -> Refusal | None:
    """Why ``backend`` does not take ``call``; None if it takes it."""
    if isinstance(backend.supports, Support):
        return _refused(backend, backend.supports, call)
    answer = backend.supports(call)
    return Refusal(answer) if isinstance(answer, str) else answer


def _refused(backend: Backend, support: Support, call: Call) -> Refusal | None:
    rows = [r for r in support.rules if _names(r, call)]
    if not rows:
        return Refusal(f"{backend.name} has no {call.name}.")
    found = [_fails(backend.name, row, call) for row in rows]
    return None if None in found else found[0]


def _names(rule: Rule, call: Call) -> bool:
    return any(o in ("*", call.name, call.name.rpartition(".")[0]) for o in rule.ops)


def _fails(name: str, rule: Rule, call: Call) -> Refusal | None:
    for t in call.tensors:
        if rule.dtypes is not None and t.dtype not in rule.dtypes:
            can = " or ".join(sorted(str(d).removeprefix("torch.") for d in rule.dtypes))
            return Refusal(f"{name} has no {call.name} on {str(t.dtype).removeprefix('torch.')}.", f"a cast to {can}")
        if rule.ranks is not None and not rule.ranks[0] <= t.rank <= rule.ranks[1]:
            return Refusal(f"{name} takes {call.name} at rank {rule.ranks[0]} to {rule.ranks[1]}, not {t.rank}.")
        if rule.contiguous and not t.is_contiguous:
            return Refusal(f"{name} takes {call.name} on contiguous tensors, not on {t}.", "a contiguous copy")
        if rule.static and t.symbols:
            return Refusal(f"{name} takes {call.name} at static sizes only, not {t}.", "a padded or a specialised size")
    return _sentence(rule.when(call)) if rule.when else None


def _sentence(text: str | None) -> Refusal | None:
    return None if text is None else Refusal(text)


__all__ = ["API", "Backend", "Call", "Dim", "Extern", "Launcher", "Limits", "LoopTarget", "Refusal", "Rule", "Source",
           "Support", "SymType", "refusal"]
