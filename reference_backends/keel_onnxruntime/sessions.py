"""Sessions of ONNX Runtime, which run on the memory of PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime
import torch
from torch import Tensor

from keel_onnxruntime.onnx_graph import numpy_dtype


def open_session(model: Any, options: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Any:
    """Compiles a model with its weights."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # errors
    settings.intra_op_num_threads = options["threads"] or torch.get_num_threads()
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{options['level']}")
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(t.detach().contiguous().numpy()) for t in weights.values()]
    settings.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=[options["provider"]])


def run_session(like: Sequence[Tensor], session: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Runs a session on the memory of tensors. Returns tensors ``like`` these; it computes those with elements."""
    binding, results = session.io_binding(), [torch.empty(each.shape, dtype=each.dtype) for each in like]
    dense = [x.resolve_neg().contiguous() for x in inputs]
    for value, x in zip(session.get_inputs(), dense, strict=True):
        binding.bind_input(value.name, "cpu", 0, numpy_dtype(x.dtype), x.shape, x.data_ptr())
    for value, y in zip(session.get_outputs(), (y for y in results if y.numel()), strict=True):
        binding.bind_output(value.name, "cpu", 0, numpy_dtype(y.dtype), y.shape, y.data_ptr())
    session.run_with_iobinding(binding)
    return tuple(results)
