"""A call's arguments by the parameter names of its overload, defaults filled in."""
from __future__ import annotations

from typing import Any

from keel.torch_adapter import parameters
from keel.types import Call


def bind(call: Call) -> dict[str, Any]:
    """Every parameter of the overload, in order, with the call's argument or the default."""
    return {p.name: call.args[i] if i < len(call.args) and not p.keyword_only else call.kwargs.get(p.name, p.default)
            for i, p in enumerate(parameters(call.op))}
