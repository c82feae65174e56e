"""Keeps writes to tensors of one float64 number, which PyTorch would lose.

A fake tensor without dimensions, on a CPU and in float64, remembers a symbol that stands for its number. AOTAutograd
asks Dynamo to trace again if a graph has symbols of floats that it made no tensors of, and this is such a symbol. In
its second trace Dynamo removes the inputs that stand for these symbols alone. It takes the result of an operator in
place, which is the same fake tensor, for one of them, so the operator is lost.
Source: ``remove_tensorify_specialized_graphargs`` in torch/_dynamo/output_graph.py and ``tensorify_python_scalars`` in
torch/fx/passes/_tensorify_python_scalars.py, PyTorch 2.11 to 2.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor


@contextmanager
def keep_scalar_writes(gm: torch.nn.Module) -> Iterator[None]:
    """Does not let AOTAutograd ask for a second trace on account of symbols that stand for the numbers of tensors.
    Where such a number decides what a graph computes, a guard on it has been added already.
    """
    from torch._dynamo.symbolic_convert import TensorifyState

    nodes = gm.graph.nodes if isinstance(gm, fx.GraphModule) else ()
    symbols = _symbols_of_tensors(nodes) - TensorifyState.force_specializations
    for symbol in symbols:
        TensorifyState.specialize(symbol)
    try:
        yield
    finally:  # or a second trace for another reason would lose the operators
        TensorifyState.force_specializations.difference_update(symbols)


def _symbols_of_tensors(nodes: Iterable[fx.Node]) -> set[str]:
    """The symbols of tensors of the program. A float of the program is an input, too, that only ``item`` reads."""
    of_tensors = [n for n in nodes if n.op != "placeholder" or any(u.target != "item" for u in n.users)]
    values = [n.meta.get("example_value") for n in of_tensors]
    numbers = [getattr(x.item_memo, "node", None) for x in values if isinstance(x, FakeTensor)]
    return {number._expr.name for number in numbers if number is not None and number._expr.is_Symbol}
