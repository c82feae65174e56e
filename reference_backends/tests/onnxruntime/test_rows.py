"""What ONNX Runtime is asked to take, and the sentences of what it refuses; none of this needs it to be installed."""

from __future__ import annotations

import ast
import io
import tokenize
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import keel_onnxruntime
from keel import Call, TensorType
from keel.testing import refusal
from keel_onnxruntime import backend

aten = torch.ops.aten
F32, F64, I64, BOOL = torch.float32, torch.float64, torch.int64, torch.bool


def tensor(*shape: int, dtype: torch.dtype = F32) -> TensorType:
    return TensorType.dense(dtype, shape)


def why(op: Any, *args: Any, out: TensorType | None = None, **kwargs: Any) -> str:
    return str(refusal(backend, Call(op, args, kwargs, (out or tensor(4),))))


def test_a_call_that_onnx_has_no_node_for_is_refused_in_a_sentence() -> None:
    x, whole, flags = tensor(4), tensor(4, dtype=I64), tensor(4, dtype=BOOL)
    image, kernel = tensor(1, 2, 4, 4), tensor(2, 2, 3, 3)
    assert why(aten.tanh.default, x) == "onnxruntime has no aten.tanh.default."
    assert why(aten.exp.default, tensor(4, dtype=F64)).startswith("onnxruntime has no aten.exp.default on float64.")
    assert "on tensors of one dtype, not on float32 and int64" in why(aten.add.Tensor, x, whole)
    assert "not on int64 and 0.5" in why(aten.mul.Tensor, whole, 0.5)
    assert "without alpha=2" in why(aten.add.Tensor, x, x, alpha=2)
    assert "without approximate='tanh'" in why(aten.gelu.default, x, approximate="tanh")
    assert "on tensors with elements" in why(aten.mean.dim, tensor(0, 4), [0])
    assert "by a bool tensor" in why(aten.where.self, whole, x, x)
    assert "of numbers of one dtype" in why(aten.where.self, flags, flags, flags)
    assert "an int64 index for each of the first dimensions" in why(aten.index.Tensor, x, [flags])
    assert "an int64 index for each of the first dimensions" in why(aten.index.Tensor, image, [None, whole])
    sizes = ([1, 1], [0, 0], [1, 1])
    assert "if it is not transposed" in why(aten.convolution.default, image, kernel, None, *sizes, True, [0, 0], 1)
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    query, key = tensor(1, 4, 3, 8), tensor(1, 2, 3, 8)
    assert "as many heads of keys as of queries" in why(attention, query, key, key)
    assert "without dropout_p=0.1" in why(attention, query, query, query, 0.1)
    assert "without ceil_mode=True" in why(
        aten.max_pool2d_with_indices.default, image, [2, 2], [2, 2], [0, 0], [1, 1], True
    )


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keel_onnxruntime, "find_spec", lambda name: None if name == "onnx" else find_spec("keel"))
    assert backend.probe() == "It needs onnx: pip install 'torch-keel[onnxruntime]'."
    monkeypatch.setattr(keel_onnxruntime, "find_spec", lambda name: None)
    assert str(backend.probe()).startswith("It needs onnx and onnxruntime:")


def code_lines(path: Path) -> int:
    """The lines of a module that have code: imports, docstrings, comments and empty lines left out."""
    text, layout = path.read_text(), {getattr(tokenize, kind) for kind in ("NL", "COMMENT", "DEDENT", "ENDMARKER")}
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in layout]
    lines = {line for t in tokens for line in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(lines)


def test_the_plugin_has_fewer_lines_than_its_page_says() -> None:
    folder = Path(keel_onnxruntime.__file__).parent
    assert sum(map(code_lines, folder.glob("*.py"))) < 250
