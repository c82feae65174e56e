"""Leaves a part to a last resort if its backend fails for it in a call, when the graph cannot be placed again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from torch import fx

from keel.errors import KeelError, KeelWarning
from keel.graph.calls import call_of
from keel.plugin import Backend, CompileContext
from keel.refusals import answer
from keel.runtime.contract_checks import Run, contract_of
from keel.runtime.part_context import options_of
from keel.runtime.prepared_constants import compile_part
from keel.runtime.result_casts import lay_out


def compile_instead(
    gm: fx.GraphModule, ctx: CompileContext, others: Sequence[Backend], error: KeelError, raised: BaseException
) -> Run:
    """The part, compiled by the first of ``others`` that takes all its calls, with ``error`` as a KeelWarning. Raises
    ``error``, which ``raised`` caused, if none takes them.
    """
    calls = [call for node in gm.graph.nodes if (call := call_of(node)) is not None]
    for other in others:
        if all(answer(other, call) is None for call in calls):
            error.do = f"{other.name} compiles it instead. strict=True makes this an error."
            warnings.warn(str(error), KeelWarning, stacklevel=4)
            ctx = replace(ctx, options=options_of(other, {}))
            return lay_out(compile_part(other, gm, ctx), contract_of(gm, other.name, "part"))
    raise error from raised.__cause__ if error is raised else raised
