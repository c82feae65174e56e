"""What a call is written out as where sizes are symbols, run on real tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from keel.graph.decompose import decompose_call
from keel.spec import decomposition_of
from keel.torch_adapter import fake_mode_of

from .traced import tensors_of, traced


def written_out(op: Any, *args: Any, symbolic: bool = True, **kwargs: Any) -> tuple[Any, ...]:
    """The results of the graph of one call's decomposition, which has the types that the call promises."""
    gm = traced(op, *args, symbolic=symbolic, **kwargs)
    (node,) = (n for n in gm.graph.nodes if n.target is op)
    parts = decompose_call(node, decomposition_of(op), fake_mode_of(gm))
    seen = _Seen(gm)
    seen.run(*tensors_of((args, kwargs)))
    given = (seen.values[a] for a in _nodes((node.args, node.kwargs)))
    return tuple(fx.GraphModule(torch.nn.Module(), parts)(*given))


def _nodes(args: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_aggregate(args, lambda a: found.append(a) if isinstance(a, fx.Node) else None)
    return found


class _Seen(fx.Interpreter):
    """Keeps every node's value."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.values[n] = super().run_node(n)
        return self.values[n]


def same_written_out(op: Any, *args: Any, symbolic: bool = True, atol: float = 1e-4, **kwargs: Any) -> None:
    """Written out with symbols for sizes, a call gives what eager gives, strides included."""
    want = op(*args, **kwargs)
    got = written_out(op, *args, symbolic=symbolic, **kwargs)
    for w, g in zip(want if isinstance(want, tuple | list) else (want,), got, strict=True):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=atol, equal_nan=True)
            if w.numel():
                assert _strides(g) == _strides(w), op
        else:
            assert g is None or g == w


def _strides(t: torch.Tensor) -> list[int]:
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]
