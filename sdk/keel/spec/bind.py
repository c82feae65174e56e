"""A call's arguments by the parameter names of its overload, defaults filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keel.torch_adapter import operator_named, parameters
from keel.types import Call


def bind(call: Call) -> dict[str, Any]:
    """Every parameter of the overload, in order, with the call's argument or the default."""
    return bound(call.op, call.args, call.kwargs)


def bound(op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter of ``op``, in order, with the argument or the default."""
    return {
        p.name: args[i] if i < len(args) and not p.keyword_only else kwargs.get(p.name, p.default)
        for i, p in enumerate(parameters(op))
    }


def by_name(overload: str, form: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """Returns a decomposition of ``overload`` that gives ``form`` the arguments by the overload's parameter names."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        op = operator_named(overload)
        assert op is not None  # it is being decomposed
        return form(bound(op, args, kwargs))

    return decompose
