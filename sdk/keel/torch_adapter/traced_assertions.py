"""What Dynamo's graphs need before a trace, so that the trace records all of their assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import cast_symbool_to_symint_guardless
from torch.overrides import TorchFunctionMode

from keel.torch_adapter.assertions import ASSERT, read_by

aten = torch.ops.aten


def read_apart(gm: fx.GraphModule) -> None:
    """Changes a graph of Dynamo's, and those in it: assertions on sizes and truth values, which PyTorch adds for all
    that it has come to believe of them, read these in ways that a trace records.

    A trace folds ``aten.sym_size.int`` of a size that it believes to be 4 to a plain 4, and the assertion on it to one
    that holds.  Where nothing else uses the tensor, the call that makes it would be dropped, and nothing be asserted.
    """
    for module in [m for m in gm.modules() if isinstance(m, fx.GraphModule)]:
        graph = module.graph
        assertions = graph.find_nodes(op="call_function", target=ASSERT)
        read = {n for assertion in assertions for n in read_by(assertion)[1]}
        for node in [n for n in graph.nodes if n in read]:
            with graph.inserting_before(node):
                if node.target in _METHODS:
                    apart = graph.call_method(_METHODS[node.target], node.args)
                elif node.target is cast_symbool_to_symint_guardless:
                    apart = graph.call_function(torch.sym_ite, (*node.args, 1, 0))
                else:
                    continue
            apart.meta = dict(node.meta)
            node.replace_all_uses_with(apart)
            graph.erase_node(node)
        if assertions and module is not gm:
            _apart_from_earlier_traces(graph)
        if assertions:
            module.recompile()


def _apart_from_earlier_traces(graph: fx.Graph) -> None:
    """All that reads a tensor which a branch is given reads an alias of it, which a trace makes.

    PyTorch remembers with a fake tensor how many elements are not zero (and the like), and traces a branch several
    times on the same ones: later traces would be given the number that an assertion has made of it, not its symbol.
    """
    inputs = graph.find_nodes(op="placeholder")
    for node in inputs:
        if isinstance(node.meta.get("example_value"), torch.Tensor):
            with graph.inserting_after(inputs[-1]):
                apart = graph.call_function(aten.alias.default, (node,))
            apart.meta = dict(node.meta)
            node.replace_all_uses_with(apart, delete_user_cb=lambda user, apart=apart: user is not apart)


_METHODS: Mapping[Any, str] = {
    aten.sym_size.int: "size",
    aten.sym_stride.int: "stride",
    aten.sym_storage_offset.default: "storage_offset",
}


@contextmanager
def factorizations_checked() -> Iterator[None]:
    """Where traces keep the check on whether a factorization succeeded. PyTorch 2.11 drops it, since it gives nothing;
    newer releases count it as an effect by themselves."""
    from torch._higher_order_ops.effects import _EffectType, _get_effect, _register_effectful_op

    if _get_effect(_FACTORIZED) is not None:
        yield
        return
    handle = _register_effectful_op(_FACTORIZED, _EffectType.ORDERED)
    try:
        yield
    finally:
        handle.destroy()


_FACTORIZED = "aten::_linalg_check_errors"


class _Said(TorchFunctionMode):
    """Assertions without a message are given one: a trace leaves out those that have none."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _SILENT and len(args) == 1 and not kwargs:
            return aten._assert_async.msg(*args, "Expected Tensor with single nonzero value, but got zero")
        return func(*args, **(kwargs or {}))


_SILENT: tuple[Any, ...] = (torch._assert_async, aten._assert_async, aten._assert_async.default)


def said(gm: fx.GraphModule) -> AbstractContextManager[Any]:
    """A context to trace ``gm`` in, which keeps all its assertions; one that costs nothing where all have a message."""
    graphs = [m.graph for m in gm.modules() if isinstance(m, fx.GraphModule)]
    silent = any(g.find_nodes(op="call_function", target=t) for g in graphs for t in _SILENT)
    return _Said() if silent else nullcontext()
