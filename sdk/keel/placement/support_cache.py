"""The answers of backends while one graph is placed: each question is asked once, and each fault is reported once.

A backend with unreliable answers harms no other backend. If it cannot say whether it takes a call, it does not get the
call. If it contradicts itself, it is left out of the graph. If its data sheet raises, it counts as a backend without
one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

from torch import fx

from keel.cost import Cost
from keel.cost.sheet import LONGEST
from keel.errors import KeelError, KeelWarning, message_of
from keel.interrupts import is_interrupt
from keel.placement.ask_claims import confirm_claim
from keel.placement.audit.verify import Refused
from keel.placement.faults import Fault
from keel.placement.placement import Plan
from keel.plugin import Backend, Refusal
from keel.refusals import CannotSay, answer
from keel.types import Call

Signature = tuple[tuple[str, str, bool], ...]
"""The name and the target of each node of a graph, and whether a backend takes it."""


def _signature(gm: fx.GraphModule, offered: Collection[str]) -> Signature:
    return tuple((node.name, str(node.target), node.name in offered) for node in gm.graph.nodes)


class SupportCache:
    """The backends of one graph, with cached answers: ``backends`` wrap the user's and ask each question once, also
    those to the functions of their data sheets.
    """

    def __init__(self, backends: Sequence[Backend], *, strict: bool = False) -> None:
        self.asked_for, self.strict = tuple(backends), strict
        self._known: dict[tuple[str, Any], Refusal | None] = {}
        self._wrong: dict[tuple[str, str], list[CannotSay]] = {}
        self._claims: dict[tuple[str, Signature], tuple[Any, ...]] = {}

    @cached_property
    def backends(self) -> tuple[Backend, ...]:
        return tuple(
            replace(own, supports=self._supports(own), cost=self._sheets[own.name], claim=self._claim(own))
            for own in self.asked_for
        )

    @cached_property
    def _sheets(self) -> dict[str, Cost | None]:
        return {own.name: None if own.cost is None else _remembering(own.name, own.cost) for own in self.asked_for}

    def _supports(self, own: Backend) -> Callable[[Call], Refusal | None]:
        def supports(call: Call) -> Refusal | None:
            key = own.name, call.key
            if key not in self._known:
                self._known[key] = self._answer(own, call)
            return self._known[key]

        return supports

    def _answer(self, own: Backend, call: Call) -> Refusal | None:
        try:
            return answer(own, call)
        except CannotSay as error:
            if self.strict:
                raise
            kind = error.raised.partition(":")[0]  # the rest often names the call
            self._wrong.setdefault((own.name, kind), []).append(error)
            return error.refusal

    def _claim(self, own: Backend) -> Callable[[fx.GraphModule, frozenset[fx.Node]], tuple[Any, ...]] | None:
        """The ``claim`` of a backend, asked once for the same calls of the same graph."""
        if (claim := own.claim) is None:
            return None

        def claimed(gm: fx.GraphModule, offered: frozenset[fx.Node]) -> tuple[Any, ...]:
            key = own.name, _signature(gm, {n.name for n in offered})
            if key not in self._claims:
                self._claims[key] = tuple(claim(gm, offered))
            return self._claims[key]

        return claimed

    def confirm_claims(self, gm: fx.GraphModule) -> None:
        """Asks each backend that made a claim of the graph once more. Raises its ``Fault`` if the answer differs."""
        claims = {own.name: own.claim for own in self.asked_for if own.claim is not None}
        for (name, signature), before in self._claims.items():
            offered = {node for node, _, is_offered in signature if is_offered}
            if name in claims and signature == _signature(gm, offered):
                confirm_claim(name, claims[name], gm, offered, before)

    def of_the_user(self, plan: Plan) -> Plan:
        """Returns the plan with the user's own backends, without the cache, so that its certificate asks them again."""
        own = {b.name: replace(b, cost=self._sheets[b.name]) for b in self.asked_for}
        return replace(
            plan,
            backends=tuple(own[b.name] for b in plan.backends),
            parts=tuple(replace(part, owner=own[part.owner.name]) for part in plan.parts),
        )

    def warn(self) -> bool:
        """Warns of the backends that could not say what they take, once for each and each kind of exception. Returns
        True if there were some.
        """
        wrong, self._wrong = self._wrong, {}
        for (name, _), errors in wrong.items():
            first = errors[0]
            if len(errors) > 1:
                first.what = (
                    f"{name} could not say whether it takes {len(errors)} calls, the first of which is "
                    f"{first.what.partition(' takes ')[2]}"
                )
            warnings.warn(str(first), KeelWarning, stacklevel=3)
        return bool(wrong)

    def contradiction(self, refused: Refused) -> Fault | None:
        """Returns the fault of an owner that refuses a call now and took it before, or None if it never took the
        call.
        """
        if refused.call is None or self._known.get((refused.owner, refused.call.key), refused) is not None:
            return None
        return Fault(
            refused.owner,
            KeelError(
                "refuse-raised",
                f"{refused.owner} contradicts itself: it took {refused.call}, and refuses it when it is asked again.",
                {refused.owner: str(refused.why)},
                refused.line,
                "This is a defect of the plugin: its `supports` says the same of equal calls. Leave it out, "
                "or report it.",
            ),
        )


def _remembering(name: str, cost: Cost) -> Cost:
    """Wraps the functions of a data sheet: each is asked once about each call, and its answer is checked."""
    return (
        replace(
            cost,
            seconds={op: _Seconds(name, op, entry) if callable(entry) else entry for op, entry in cost.seconds.items()},
        )
        if cost.seconds
        else cost
    )


@dataclass(eq=False)
class _Seconds:
    """A function of a data sheet with cached and checked answers.  Raises ``Fault``."""

    backend: str
    operator: str
    function: Callable[[Call], float]

    def __post_init__(self) -> None:
        self._known: dict[Any, float] = {}

    def __call__(self, call: Call) -> float:
        if call.key not in self._known:
            self._known[call.key] = self._uncached(call)
        return self._known[call.key]

    def _uncached(self, call: Call) -> float:
        try:
            seconds = self.function(call)
        except BaseException as raised:
            if is_interrupt(raised):
                raise
            raise self._fault(call, f"It raised {type(raised).__name__}: {message_of(raised)}") from raised
        if isinstance(seconds, bool) or not isinstance(seconds, Real):
            raise self._fault(call, f"It returned {type(seconds).__name__}, not a number.")
        try:
            number = float(seconds)
        except OverflowError:
            number = math.inf
        if not 0 <= number <= LONGEST:
            raise self._fault(call, f"It returned {number:g}.")
        return number

    def _fault(self, call: Call, why: str) -> Fault:
        return Fault(
            self.backend,
            KeelError(
                "cost-raised",
                f"{self.backend} could not say how long {call} takes.",
                {self.backend: why},
                do=f"This is a defect of its data sheet: the function for {self.operator} in `seconds` "
                f"returns a number of "
                "seconds, at least 0.",
            ),
            sheet=True,
        )
