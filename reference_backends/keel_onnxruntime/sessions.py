"""Sessions of ONNX Runtime, which run on the memory of PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime
import torch
from torch import Tensor

from keel_onnxruntime.onnx_values import BITS, HALVES, onnx_dtype


def open_session(model: bytes, options: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Any:
    """Compiles a model with its weights. Returns the session and the values of the weights, whose memory the session
    reads in each call and does not own. An empty model has no session: ONNX Runtime opens none without results.
    """
    if not model:
        return None
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # errors
    settings.intra_op_num_threads = options["threads"] or torch.get_num_threads()
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{options['level']}")
    values = [_shared(t.detach()) for t in weights.values()]
    settings.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(model, settings, providers=[options["provider"]]), values


def _shared(tensor: Tensor) -> Any:
    """A value of ONNX Runtime on the memory of a tensor, or of a copy if that is not contiguous. NumPy has no
    bfloat16: 16-bit floats are passed as integers, and their dtype as a number.
    """
    if tensor.dtype not in HALVES:
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.contiguous().numpy())
    bits = tensor.view(BITS[tensor.dtype]).contiguous().numpy()
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx_dtype(tensor.dtype))


def run_session(like: Sequence[tuple[torch.dtype, tuple[int, ...]]], session: Any, *inputs: Tensor) -> Any:
    """Runs a session on the memory of tensors. Returns a tensor for each dtype and shape of ``like``; the session
    computes those with elements.
    """
    results = [torch.empty(shape, dtype=dtype) for dtype, shape in like]
    if session is None:
        return tuple(results)
    dense = [x.resolve_neg().contiguous() for x in inputs]
    binding = session[0].io_binding()
    for value, x in zip(session[0].get_inputs(), dense, strict=True):
        binding.bind_input(value.name, "cpu", 0, onnx_dtype(x.dtype), x.shape, x.data_ptr())
    for value, y in zip(session[0].get_outputs(), (y for y in results if y.numel()), strict=True):
        binding.bind_output(value.name, "cpu", 0, onnx_dtype(y.dtype), y.shape, y.data_ptr())
    session[0].run_with_iobinding(binding)
    return tuple(results)
