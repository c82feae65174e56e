"""An ONNX model of a part's graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import getitem
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper
from torch import Tensor, fx

VERSION, FORMAT = 26, 13
"""The versions of ONNX's operators, and of its files."""


class OnnxGraph(fx.Interpreter):
    """The nodes of a model. A value is a name; ``like`` has the fake tensors of the values of the part's graph. To run
    the graph is to add its nodes.
    """

    def __init__(self, gm: fx.GraphModule, emitters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(gm)
        self.emitters = emitters
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.like: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_function" and n.target is not getitem:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            value = self.emitters[str(n.target)](self, n.meta["val"], *args, **kwargs)
        else:
            value = n.name if n.op == "placeholder" else super().run_node(n)
        if isinstance(n.meta.get("val"), Tensor):
            self.like[value] = n.meta["val"]
        return value

    def node(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Adds a node with one result, and returns that."""
        return self.node_of(kind, 1, *inputs, **attributes)[0]

    def node_of(self, kind: str, results: int, *inputs: Any, **attributes: Any) -> list[str]:
        """Adds a node, and returns its results. Inputs are values, None for those that are left out, numbers of the
        dtype of the first value, or arrays, of int64 if they are sequences.
        """
        dtype = next((self.like[x].dtype for x in inputs if isinstance(x, str) and x in self.like), torch.float32)
        names = [self.value(x, dtype) for x in inputs]
        while not names[-1]:  # ONNX Runtime 1.32 crashes on a last input that is left out by name
            names.pop()
        made = [f"{kind}.{len(self.nodes)}.{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, names, made, **attributes))
        return made

    def value(self, operand: Any, dtype: torch.dtype = torch.float32) -> str:
        """The name of a value; constants are added to the graph."""
        if operand is None or isinstance(operand, str):
            return operand or ""
        kind = np.int64 if isinstance(operand, Sequence) else getattr(operand, "dtype", numpy_dtype(dtype))
        self.constants.append(onnx.numpy_helper.from_array(np.array(operand, kind), f"constant.{len(self.constants)}"))
        return self.constants[-1].name

    def cast(self, value: str, dtype: torch.dtype, kind: str = "Cast") -> str:
        return self.node(kind, value, to=onnx_dtype(dtype))

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


def onnx_model(
    gm: fx.GraphModule, emitters: Mapping[str, Callable[..., Any]], weights: Iterable[str] = ()
) -> onnx.ModelProto:
    """The model of a part. ``emitters`` add the nodes of calls, by operator. Placeholders that are ``weights`` are
    constants. Results without elements are left out.
    """
    graph = OnnxGraph(gm, emitters)
    results = [value for value in graph.run() if graph.like[value].numel()]
    inputs = [node.name for node in gm.graph.find_nodes(op="placeholder") if node.name not in weights]
    return graph.model(inputs, list(weights), results)


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(str(dtype).removeprefix("torch."))


def onnx_dtype(dtype: torch.dtype) -> int:
    return int(helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))
