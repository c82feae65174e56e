"""One thing to try on a backend, as plain data: what it is about, how its arguments are drawn, which clauses it cites.

A case holds no tensors. Each process that needs the arguments (the backend's and the judge's) draws them from the case
alone and gets the same bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

from ..pytree import tensor_leaves

Kind = Literal["op", "negative", "program", "graph", "kernel"]
"""``op``: one call of an operator. ``negative``: a call that breaks a precondition. ``program``: a function, written by
hand, under ``torch.compile``. ``graph``: a drawn one. ``kernel``: loop IR on a loop target.
"""


@dataclass(frozen=True)
class Case:
    """``op`` is the member, program or kernel it is about, by which failures are attributed; ``overload`` the full name
    of what an ``op`` or ``negative`` case calls. ``choice`` has the level of each factor that the arguments are drawn
    by (layout, sizes, values, attributes ...); ``clauses`` those it witnesses, as ``add.C1``.
    """

    op: str
    family: str
    kind: Kind
    profile: str
    overload: str = ""
    dtype: str = ""
    choice: tuple[tuple[str, str], ...] = ()
    clauses: tuple[str, ...] = ()
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """Readable, unique, the same in every run: changes with whatever changes the arguments."""
        levels = [level for _, level in self.choice]
        return "/".join([self.op, *([self.dtype] if self.dtype else []), *levels, self.digest[:8]])

    @cached_property
    def digest(self) -> str:
        text = json.dumps({f.name: getattr(self, f.name) for f in fields(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def levels(self) -> Mapping[str, str]:
        return dict(self.choice)


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of a case. ``notes`` says what an oracle may use of how they were drawn: that float
    arguments are small integers whose sums are exact in any order (``exact``), say.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    notes: frozenset[str] = frozenset()

    @property
    def tensors(self) -> list[Tensor]:
        """Those among the arguments, in order."""
        return tensor_leaves((self.args, dict(self.kwargs)))
