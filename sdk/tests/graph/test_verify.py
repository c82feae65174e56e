"""What graphs may not contain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.errors import KeelError
from keel.graph.verify import verify, violations

from ..line import trace


def test_a_pure_graph_is_well_formed() -> None:
    verify(trace(lambda x: ((x * x.shape[0]).split(2)[0].sum(),), torch.randn(3, 4), symbolic=True), "capture")


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("nonzero", lambda x: (x.nonzero() * 2,)),
        ("index", lambda x: (x[x > 0] * 2,)),
        ("masked_select", lambda x: (torch.masked_select(x, x > 0) * 2,)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_size_that_only_a_run_tells_is_not_promised(name: str, fn: Callable[..., Any]) -> None:
    """A call that relies on it takes the result of an assertion."""
    gm = trace(fn, torch.ones(3, dtype=torch.int64), symbolic=True)
    verify(gm, "capture")
    node = next(n for n in gm.graph.nodes if n.name == name)
    with node.meta["val"].fake_mode:
        node.meta["val"] = torch.empty((4, *node.meta["val"].shape[1:]), dtype=torch.int64)
    with pytest.raises(KeelError) as raised:
        verify(gm, "capture")
    assert raised.value.reasons == {
        name: f"Its type promises the shape {list(node.meta['val'].shape)}, which depends on "
        "data, and no assertion tests it."
    }
    assert not dict(violations(gm))  # a graph that was traced on real tensors may be saved


def test_each_fault_has_a_sentence(golden: Callable[..., None]) -> None:
    gm = make_fx(lambda x: x.add_(1) + torch.ones(2), tracing_mode="fake")(torch.randn(2))
    graph = gm.graph
    with graph.inserting_before(graph.output_node()):
        graph.call_method("sum", (next(iter(graph.nodes)),))
        bare = graph.call_function(torch.ops.aten.neg.default, (next(iter(graph.nodes)),))
        odd = graph.call_function(torch.relu, (bare,))
        odd.meta["val"] = torch.empty(2)
        gm.weight = torch.nn.Parameter(torch.empty(2))
        graph.get_attr("weight")
    with pytest.raises(KeelError) as raised:
        verify(gm, "capture")
    golden("\n".join(f"{name}: {why}" for name, why in violations(gm)))
    assert str(raised.value).startswith("KeelError[bad-graph]: The graph is not well-formed after capture.")
