"""What graphs may not contain."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.errors import KeelError
from keel.graph.verify import verify, wrong

from ..line import trace


def test_a_pure_graph_is_well_formed() -> None:
    verify(trace(lambda x: ((x * x.shape[0]).split(2)[0].sum(),), torch.randn(3, 4), symbolic=True), "capture")


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
    golden("\n".join(f"{name}: {why}" for name, why in wrong(gm)))
    assert str(raised.value).startswith("KeelError[bad-graph]: The graph is not well-formed after capture.")
