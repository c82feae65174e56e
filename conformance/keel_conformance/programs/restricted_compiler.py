"""The compiler of contract programs for a Keel backend: one that can be kept from taking some operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

import keel
from keel.plugin import CompileContext, PreparedConstants, with_context


@dataclass
class Compiler:
    """``Compiler(backend)(fn, dynamic=..., without=("aten.add",))``: ``fn`` compiled by the backend, eager PyTorch
    taking what it refuses. ``without`` names operators, as overloads or packets, that it is not given. ``parts`` counts
    the pieces it compiled. ``whole`` asks for one graph, with the sizes and numbers in it that only a run tells.
    """

    backend: keel.Backend
    parts: int = field(default=0)

    def __call__(
        self,
        fn: Callable[..., Any],
        *,
        dynamic: bool | None = None,
        without: Sequence[str] = (),
        fullgraph: bool = False,
    ) -> Callable[..., Any]:
        backend = self.restricted(tuple(without))
        rest = [] if backend.name == "eager" and backend.last_resort else ["eager"]
        return keel.compile(fn, backends=[backend, *rest], dynamic=dynamic, fullgraph=fullgraph, strict=True)

    def restricted(self, without: Sequence[str]) -> keel.Backend:
        held = self.backend

        def supports(call: keel.Call) -> keel.Refusal | str | None:
            if call.name in without or call.name.rpartition(".")[0] in without:
                return f"{call.name} is left to others here."
            refusal: keel.Refusal | str | None = keel.testing.refusal(held, call)
            return refusal

        def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any] | PreparedConstants:
            self.parts += 1
            return with_context(held.compile, ctx)(gm)

        # Under another name it may stand before eager PyTorch's own, which takes what is refused.
        only = held.last_resort and bool(without)
        return replace(
            held,
            supports=supports,
            compile=compile,
            name=f"{held.name}-parts" if only else held.name,
            last_resort=held.last_resort and not only,
        )


def plain(
    fn: Callable[..., Any], *, dynamic: bool | None = None, without: Sequence[str] = (), fullgraph: bool = False
) -> Callable[..., Any]:
    """The compiler of eager PyTorch."""
    return fn
