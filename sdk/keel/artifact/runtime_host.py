"""Parts that only the host runs, for the C++ runtime: they read numbers from tensors, and test conditions on numbers.

PyTorch runs such a part in Python, whichever backend owns it. The C++ runtime runs it by steps of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from keel.artifact.runtime_data import ProgramData
from keel.artifact.runtime_views import ViewMaker, number_in, type_in, value_of
from keel.serialize.codec import NotSerializable
from keel.torch_adapter import dim_of
from keel.types import SymType

aten = torch.ops.aten
_READABLE = (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


class HostPart:
    """A part that only the host runs. ``inputs`` are the values of its placeholders."""

    def __init__(self, data: ProgramData, scope: dict[str, int], graph: fx.Graph, inputs: Sequence[Any]) -> None:
        self.data, self.scope, self.graph = data, scope, graph
        self.known = dict(zip(graph.find_nodes(op="placeholder"), inputs, strict=True))
        self.values = ViewMaker(data, scope, graph, self.known)

    @staticmethod
    def is_one(graph: fx.Graph) -> bool:
        """True if all calls of a graph are of the kind that is run here, or arithmetic on sizes."""
        return all(node.target in _CALLS or number_in(node) is not None for node in graph.nodes if node.op not in _ENDS)

    def write(self) -> list[Any]:
        """Writes the steps, and returns the results."""
        for node in self.graph.nodes:
            if (write := _CALLS.get(node.target)) is not None:
                write(self, node)
        returned: Sequence[Any] = self.graph.output_node().args[0]  # type: ignore[assignment]
        return [self.values.value(node) for node in returned]

    def read(self, node: fx.Node) -> None:
        """The only element of a tensor, as a number."""
        (tensor,) = node.all_input_nodes
        number = number_in(node)
        if number is None or not isinstance(number.expr, sympy.Symbol) or value_of(tensor).dtype not in _READABLE:
            raise NotSerializable(f"The C++ runtime cannot read the number {node.name} from a tensor.")
        name = number.expr.name
        self.scope[name] = self.data.tables.symbol(name)
        self.data.do("read", self.scope[name], self.values.value(tensor))
        self.known[node] = SymType(self.data.tables.number(number.expr, self.scope), number.kind)

    def check(self, node: fx.Node) -> None:
        """A condition that the model asserts."""
        condition, message = node.args
        if isinstance(condition, fx.Node):
            self.data.do("assert", self.values.value(condition).expr, message)
        elif not condition:
            raise NotSerializable(f"The model always fails: {message}")

    def check_type(self, node: fx.Node) -> None:
        """What the model asserts of a tensor's type. The types of all tensors are checked elsewhere, so that only sizes
        that are not known to be equal are compared.
        """
        passed: dict[str, Any] = (
            dict(zip(("a", "size", "stride", "dtype", "device", "layout"), node.args, strict=False)) | node.kwargs
        )
        type = type_in(passed["a"])
        facts = {"dtype": type.dtype, "device": type.device, "layout": torch.strided}
        wrong = any(passed.get(name) not in (None, fact) for name, fact in facts.items())
        expected = ((type.shape, passed.get("size")), (type.strides, passed.get("stride")))
        for dims, sizes in expected:
            if sizes is not None and len(sizes) == len(dims):
                for dim, size in zip(dims, sizes, strict=True):
                    self._compare(dim, dim_of(value_of(size)) if isinstance(size, fx.Node) else size)
            wrong |= sizes is not None and len(sizes) != len(dims)
        if wrong:
            raise NotSerializable(f"The model always fails, because {passed['a']} is of the type {type}.")

    def _compare(self, dim: Any, size: Any) -> None:
        if (condition := sympy.Eq(dim, size)) != sympy.true:
            number = self.data.tables.number(condition, self.scope, "bool")
            self.data.do("assert", number, f"A size of a tensor is not {size}.")

    def skip(self, node: fx.Node) -> None:
        """A call that tells a compiler about a number, and computes nothing."""


_CALLS: Mapping[Any, Callable[[HostPart, fx.Node], None]] = {
    aten._local_scalar_dense.default: HostPart.read,
    aten._assert_scalar.default: HostPart.check,
    aten._assert_tensor_metadata.default: HostPart.check_type,
    aten.sym_constrain_range.default: HostPart.skip,
    aten.sym_constrain_range_for_size.default: HostPart.skip,
}
_ENDS = ("placeholder", "output")
