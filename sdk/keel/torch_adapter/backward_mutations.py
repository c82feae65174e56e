"""Mutations of a forward's inputs in its backward. AOTAutograd's graphs are changed so that backward reads an input
when backward runs, as in eager PyTorch, and saved tensors keep the values that they had.

In the joint graph a mutation is a ``copy_`` that is tagged for one of the two graphs. The partitioner assumes that an
input has the same values in both. So it would compute in forward what backward has to write, or recompute something in
backward from an input that forward has overwritten since.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from keel.torch_adapter.mutations import COPIED, mutates_input, roots, viewed

aten = torch.ops.aten
_TAG, _MUST = "partitioner_tag", "must_be_in_backward"
_BACKWARD = ("is_backward", _MUST)
_LATE = "keel.late"
_UNCHECKED = "saved_tensor_with_no_vc_check"


def saves_unchecked() -> bool:
    """True if this PyTorch can save a tensor for backward without a version check, so that backward runs after a write
    to it.
    """
    from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta

    return hasattr(ViewAndMutationMeta, "num_tensors_saved_with_no_vc_check")


def read_late(joint: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Makes backward read inputs that either graph mutates at the time when backward runs. It then sees writes since
    forward, including those of an earlier run of the same backward. Changes ``joint`` in place.
    """
    mutating = [n for n in joint.graph.nodes if mutates_input(n)]
    forward = {n.args[0]: n for n in mutating if n.meta.get(_TAG) not in _BACKWARD}
    written = {n.args[0] for n in mutating if n.meta.get(_TAG) in _BACKWARD}
    if not mutating:
        return
    backward = _of_backward(joint, num_fwd_outputs, list(forward.values()))
    for target in dict.fromkeys(n.args[0] for n in mutating):
        assert isinstance(target, fx.Node)
        first = forward.get(target)
        if first is not None and (first.target is not aten.copy_.default or not isinstance(first.args[1], fx.Node)):
            continue  # it shares another input's memory
        contents = target if first is None else first.args[1]
        late = _Late(target, contents).read(backward)
        if late or target in written:
            if target in written or contents.meta.get(_UNCHECKED):
                target.meta[_UNCHECKED] = True  # its own mutation must not prevent a second run
            _keep_old(target, late)


def _of_backward(joint: fx.GraphModule, num_fwd_outputs: int, forward: list[fx.Node]) -> set[fx.Node]:
    """The nodes that the program computes in backward. PyTorch tags most nodes, but not those that functionalization
    inserts when a mutated input is read again.
    """
    outputs: Any = joint.graph.output_node().args[0]
    needed, waiting = set[fx.Node](), [*outputs[:num_fwd_outputs], *forward]
    while waiting:
        node = waiting.pop()
        if isinstance(node, fx.Node) and node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    return {
        n
        for n in joint.graph.nodes
        if n.op == "call_function" and (n.meta.get(_TAG) in _BACKWARD or (n.meta.get(_TAG) is None and n not in needed))
    }


def _keep_old(target: fx.Node, late: set[fx.Node]) -> None:
    """Makes nodes that read an input before forward mutates it read a copy. The copy can be saved for backward in
    addition to the input.
    """
    if all(u.meta.get(_TAG) in _BACKWARD for u in target.users if mutates_input(u)):
        return
    readers = [u for u in target.users if not mutates_input(u) and u.op != "output" and u not in late]
    if readers:
        with target.graph.inserting_before(min(readers)):
            copy = target.graph.call_function(aten.clone.default, (target,))
        copy.meta = {"val": target.meta["val"], _TAG: "is_forward", "recompute": CheckpointPolicy.MUST_SAVE}
        for reader in readers:
            reader.replace_input_with(target, copy)


class _Late:
    """Makes backward read the current contents of ``target`` wherever it reads ``contents`` or a view of them that
    forward made.
    """

    def __init__(self, target: fx.Node, contents: Any) -> None:
        self.target, self.contents = target, contents
        self._made: dict[fx.Node, fx.Node] = {}

    def read(self, backward: set[fx.Node]) -> set[fx.Node]:
        """Changes the nodes of ``backward``, and returns the new nodes that read the input when backward runs."""
        for node in [u for u in self.target.users if u.target is aten.alias.default]:
            node.replace_all_uses_with(self.target)  # or the partitioner would mistake it for the late read
        known, readers = {self.contents}, set[fx.Node]()
        waiting = [self.contents]
        while waiting:  # collects views that forward makes and the nodes of backward that read them
            node = waiting.pop()
            for user in node.users:
                if user in backward:
                    readers.add(user)
                elif user not in known and node in viewed(user):
                    known.add(user)
                    waiting.append(user)
        for node in sorted(readers):  # a late read is inserted before its first reader
            if mutates_input(node):
                source: Any = node.args[1]
                if source in known:
                    node.update_arg(1, self._late(source, node))
            else:
                for read in [n for n in node.all_input_nodes if n in known]:
                    node.replace_input_with(read, self._late(read, node))
        return set(self._made.values())

    def _late(self, node: Any, reader: fx.Node) -> fx.Node:
        if node not in self._made:
            graph = node.graph
            if node is self.contents:
                with graph.inserting_before(reader):
                    late = graph.call_function(aten.alias.default, (self.target,))
            else:
                args = [self._late(a, reader) if a in viewed(node) else a for a in node.args]
                with graph.inserting_before(reader):
                    late = graph.create_node("call_function", node.target, tuple(args), dict(node.kwargs))
            late.meta = {"val": node.meta["val"], _TAG: _MUST, _LATE: True}
            self._made[node] = late
        return self._made[node]


def keep_saved(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Marks the saved tensors that share memory with an input which ``forward`` mutates, so that ``backward`` gets
    copies.
    """
    written = {n.args[0] for n in forward.graph.nodes if mutates_input(n)}
    late = {n.args[0].name for n in backward.graph.nodes if n.meta.get(_LATE) or mutates_input(n)}
    output = forward.graph.output_node()
    copied = [
        i
        for i, node in enumerate(output.args[0])  # type: ignore[arg-type]
        if i >= num_fwd_outputs and not written.isdisjoint(roots(node)) and node.name not in late
    ]
    if copied:
        output.meta[COPIED] = tuple(copied)
