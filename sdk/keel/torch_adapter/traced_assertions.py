"""Prepares Dynamo's graphs so that a trace records all of their assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import cast_symbool_to_symint_guardless
from torch.overrides import TorchFunctionMode

from keel.torch_adapter.runtime_asserts import ASSERT, read_by

aten = torch.ops.aten


def read_apart(gm: fx.GraphModule) -> None:
    """Changes a graph of Dynamo's and the graphs in it. PyTorch adds an assertion for each fact that it assumes about
    sizes and bools; here these assertions read the sizes and bools with calls that a trace records.

    A trace folds ``aten.sym_size.int`` of a size that it assumes to be 4 to a plain 4, and the assertion on it to True.
    If nothing else uses the tensor, the call that makes it would be dropped, and nothing would be asserted.
    """
    for module in [m for m in gm.modules() if isinstance(m, fx.GraphModule)]:
        graph = module.graph
        assertions = graph.find_nodes(op="call_function", target=ASSERT)
        read = {n for assertion in assertions for n in read_by(assertion)[1]}
        for node in [n for n in graph.nodes if n in read]:
            with graph.inserting_before(node):
                if node.target in _METHODS:
                    traced = graph.call_method(_METHODS[node.target], node.args)
                elif node.target is cast_symbool_to_symint_guardless:
                    traced = graph.call_function(torch.sym_ite, (*node.args, 1, 0))
                else:
                    continue
            traced.meta = dict(node.meta)
            node.replace_all_uses_with(traced)
            graph.erase_node(node)
        if assertions and module is not gm:
            _alias_inputs(graph)
        if assertions:
            module.recompile()


def _alias_inputs(graph: fx.Graph) -> None:
    """Makes nodes in a branch read aliases of its inputs. Each trace makes these aliases again.

    PyTorch caches data-dependent numbers, such as the length of ``nonzero``, on a fake tensor, and it traces a branch
    several times with the same fake tensors. Later traces would get the number that an assertion has replaced the
    symbol by.
    """
    inputs = graph.find_nodes(op="placeholder")
    for node in inputs:
        if isinstance(node.meta.get("example_value"), torch.Tensor):
            with graph.inserting_after(inputs[-1]):
                traced = graph.call_function(aten.alias.default, (node,))
            traced.meta = dict(node.meta)
            node.replace_all_uses_with(traced, delete_user_cb=lambda user, traced=traced: user is not traced)


_METHODS: Mapping[Any, str] = {
    aten.sym_size.int: "size",
    aten.sym_stride.int: "stride",
    aten.sym_storage_offset.default: "storage_offset",
}


@contextmanager
def factorizations_checked() -> Iterator[None]:
    """A context in which traces keep the check that a factorization succeeded. PyTorch 2.11 drops it, because it has no
    result; newer releases treat it as an effect.
    """
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


class _WithMessages(TorchFunctionMode):
    """Adds a message to assertions without one, because a trace drops these."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _SILENT and len(args) == 1 and not kwargs:
            return aten._assert_async.msg(*args, "Expected Tensor with single nonzero value, but got zero")
        return func(*args, **(kwargs or {}))


_SILENT: tuple[Any, ...] = (torch._assert_async, aten._assert_async, aten._assert_async.default)


def keep_silent_assertions(gm: fx.GraphModule) -> AbstractContextManager[Any]:
    """A context for tracing ``gm`` that keeps assertions without a message. It does nothing if all have one."""
    graphs = [m.graph for m in gm.modules() if isinstance(m, fx.GraphModule)]
    silent = any(g.find_nodes(op="call_function", target=t) for g in graphs for t in _SILENT)
    return _WithMessages() if silent else nullcontext()
