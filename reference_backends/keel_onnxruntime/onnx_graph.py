"""An ONNX model of a part's graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import getitem
from typing import Any

import onnx
import torch
from onnx import helper
from torch import Tensor, fx

from keel_onnxruntime.onnx_values import Value, onnx_dtype

VERSION, FORMAT = 26, 13
"""The versions of ONNX's operators, and of its files."""
TRUTHS = "Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor Not IsNaN IsInf"
RESULTS = {
    **dict.fromkeys(TRUTHS.split(), torch.bool),
    **dict.fromkeys(["ArgMax", "ArgMin", "NonZero"], torch.int64),
    "MatMulInteger": torch.int32,
}
"""The dtype of the results of kinds of nodes that do not have that of their operands."""

FURTHER = {"TopK": torch.int64, "MaxPool": torch.int64, "LayerNormalization": torch.float32}
"""The dtype of all results but the first."""


class OnnxGraph(fx.Interpreter):
    """The nodes of a model. ``like`` has the fake tensors of the values of the part's graph, and ``dtypes`` the dtype
    of every value. To run the graph is to add its nodes.
    """

    def __init__(self, gm: fx.GraphModule, emitters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(gm)
        self.emitters = emitters
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.like: dict[str, Tensor] = {}
        self.dtypes: dict[str, torch.dtype] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_function" and n.target is not getitem:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            value = self.emitters[str(n.target)](self, n.meta["val"], *args, **kwargs)
        else:
            value = Value(n.name) if n.op == "placeholder" else super().run_node(n)
        if isinstance(n.meta.get("val"), Tensor):
            self.like[value], self.dtypes[value] = n.meta["val"], n.meta["val"].dtype
        return value

    def node(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """Adds a node with one result, and returns that."""
        return self.node_of(kind, 1, *inputs, **attributes)[0]

    def node_of(self, kind: str, results: int, *inputs: Any, **attributes: Any) -> list[Value]:
        """Adds a node, and returns its results. Inputs are values, None for those that are left out, numbers of the
        dtype of the first value, tensors, or sequences of integers.
        """
        dtype = next((self.dtypes[x] for x in inputs if isinstance(x, Value)), torch.float32)
        names = [self.value(x, dtype) for x in inputs]
        while not names[-1]:  # ONNX Runtime 1.32 crashes on a last input that is left out by name
            names.pop()
        made = [Value(f"{kind}.{len(self.nodes)}.{i}") for i in range(results)]
        self.nodes.append(helper.make_node(kind, names, made, **attributes))
        of = self.dtypes[names[1]] if kind == "Where" else self.dtypes[names[0]]
        self.dtypes |= dict.fromkeys(made, RESULTS.get(kind, of))
        if kind in FURTHER:
            self.dtypes |= dict.fromkeys(made[1:], FURTHER[kind])
        return made

    def value(self, operand: Any, dtype: torch.dtype = torch.float32) -> Value:
        """The name of a value; constants are added to the graph, and are of ``dtype`` if they are numbers."""
        if operand is None or isinstance(operand, str):
            return Value(operand or "")
        if not isinstance(operand, Tensor):
            dtype = torch.int64 if isinstance(operand, Sequence) else dtype
            is_float = dtype.is_floating_point or isinstance(operand, float)
            operand = torch.tensor(operand, dtype=torch.float64 if is_float else torch.int64).to(dtype)
        name, kind = Value(f"constant.{len(self.constants)}"), onnx_dtype(operand.dtype)
        data = operand.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        self.constants.append(helper.make_tensor(name, kind, operand.shape, data, raw=True))
        self.like[name], self.dtypes[name] = operand, operand.dtype
        return name

    def cast(self, value: Value, dtype: torch.dtype, kind: str = "Cast") -> Value:
        """Converts a value, or with ``BitCast`` its bits. The value itself if it has the dtype."""
        if self.dtypes[value] == dtype:
            return value
        result = self.node(kind, value, to=onnx_dtype(dtype))
        self.dtypes[result] = dtype
        if value in self.like:
            self.like[result] = self.like[value].to(dtype)
        return result

    def model(self, inputs: Sequence[str], weights: Sequence[str], results: Sequence[str]) -> onnx.ModelProto:
        """The model of the nodes that ``results`` depend on. Weights are constants that lie outside the model."""
        made, outputs = {value for node in self.nodes for value in node.output}, list[str]()
        for result in results:  # an Identity only where it must be: ONNX Runtime 1.32 loses its operand
            is_own = result in made and result not in outputs
            outputs.append(result if is_own else self.node("Identity", result))
        nodes, used = list[onnx.NodeProto](), set(outputs)
        for node in reversed(self.nodes):
            if not used.isdisjoint(node.output):
                nodes.insert(0, node)
                used.update(node.input)
        types = {name: (onnx_dtype(self.like[name].dtype), self.like[name].shape) for name in (*inputs, *weights)}
        declared = [helper.make_tensor_value_info(name, *types[name]) for name in inputs]
        constants = [constant for constant in self.constants if constant.name in used]
        outside: Any = dict(data_location="EXTERNAL", external_data=[dict(key="location", value="memory")])
        constants += [onnx.TensorProto(name=n, data_type=types[n][0], dims=types[n][1], **outside) for n in weights]
        graph = helper.make_graph(nodes, "part", declared, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", VERSION)], ir_version=FORMAT)


def onnx_model(gm: fx.GraphModule, emitters: Mapping[str, Callable[..., Any]], weights: Iterable[str] = ()) -> bytes:
    """The model of a part, as a file of ONNX. ``emitters`` add the nodes of calls, by operator. Placeholders that are
    ``weights`` are constants. Results without elements are left out; the file is empty if no
    result has elements.
    """
    graph = OnnxGraph(gm, emitters)
    results = [value for value in graph.run() if graph.like[value].numel()]
    inputs = [node.name for node in gm.graph.find_nodes(op="placeholder") if node.name not in weights]
    return b"" if not results else bytes(graph.model(inputs, list(weights), results).SerializeToString())
