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
from keel.opset import MEMBERS
from keel.testing import refusal
from keel_onnxruntime import backend
from keel_onnxruntime.onnx_operators import ROOMS, ROWS
from keel_onnxruntime.onnx_values import DOUBLE, REAL, WIDE, WIDER, computed_in
from keel_onnxruntime.refused import REASONS, refused

aten = torch.ops.aten
F32, F64, I64, BOOL = torch.float32, torch.float64, torch.int64, torch.bool


def tensor(*shape: int, dtype: torch.dtype = F32) -> TensorType:
    return TensorType.dense(dtype, shape)


def why(op: Any, *args: Any, out: TensorType | None = None, **kwargs: Any) -> str:
    return str(refusal(backend, Call(op, args, kwargs, (out or tensor(4),))))


def test_a_call_that_onnx_has_no_node_for_is_refused_in_a_sentence() -> None:
    x, whole, flags = tensor(4), tensor(4, dtype=I64), tensor(4, dtype=BOOL)
    image = tensor(1, 2, 4, 4)
    assert why(aten.erfc.default, x) == "onnxruntime has no aten.erfc.default: ONNX has no such operator."
    assert why(aten.tan.default, tensor(4, dtype=F64)).startswith("onnxruntime has no aten.tan.default on float64.")
    assert "on tensors of one dtype, not on float32 and int64" in why(aten.add.Tensor, x, whole)
    assert "not on int64 and 0.5" in why(aten.mul.Tensor, whole, 0.5)
    assert "without divisor_override=3" in why(aten.avg_pool2d.default, image, [2], [], [0], False, True, 3)
    assert "without approximate='tanh'" in why(aten.gelu.default, x, approximate="tanh")
    assert "on tensors with elements" in why(aten.addmm.default, x, tensor(4, 0), tensor(0, 4))
    assert "by a bool tensor" in why(aten.where.self, whole, x, x)
    assert "of tensors of one dtype" in why(aten.where.self, flags, x, whole)
    assert "with integer indices, not masks" in why(aten.index.Tensor, x, [flags])
    assert "accumulates bools" in why(aten.index_put.default, flags, [whole], flags, True)
    assert "ONNX Runtime ignores NaN" in why(aten.scatter_reduce.two, x, 0, whole, x, "amax")
    assert "the operand's elements included" in why(aten.scatter_reduce.two, x, 0, whole, x, "mean")
    assert "of pads that are not negative" in why(aten.reflection_pad1d.default, tensor(2, 4, 4), [-1, 1])
    assert "of the same width" in why(aten.view.dtype, x, I64, out=tensor(2, dtype=I64))
    assert "to multiples of sizes" in why(aten.upsample_nearest2d.default, image, [6, 8], out=tensor(1, 2, 6, 8))
    assert "without alpha and beta" in why(aten.addmm.default, *[tensor(4, 4, dtype=F64)] * 3, alpha=0.1)
    assert "at most 65536 elements" in why(aten.arange.default, 9**6, dtype=F32, out=tensor(9**6))
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    query, key = tensor(1, 4, 3, 8), tensor(1, 2, 3, 8)
    assert "as many heads of keys as of queries" in why(attention, query, key, key)
    assert "without dropout_p=0.1" in why(attention, query, query, query, 0.1)


def test_each_primitive_has_a_row_or_a_reason() -> None:
    reasons, taken = refused(), {overload for row in ROWS for overload in row.rule.ops}
    primitives = {op.name: op for op in MEMBERS.values() if op.kind == "primitive"}
    assert reasons.keys() <= primitives.keys() and len(reasons) == sum(len(names.split()) for names in REASONS.values())
    for name, op in primitives.items():
        has_row = op.overloads[0] in taken
        assert has_row is not (name in reasons), f"{name} has {'both' if has_row else 'neither'}"
        assert has_row or taken.isdisjoint(op.overloads)
    page = Path(__file__).parents[3] / "docs" / "how" / "wrap-a-compiler.md"
    assert f"{len(primitives) - len(reasons)} of the {len(primitives)} primitives of" in page.read_text()
    assert f"The other {len(reasons)}\nprimitives" in page.read_text()


def test_operands_are_converted_to_a_dtype_that_has_their_values() -> None:
    assert computed_in(torch.bfloat16, REAL) == torch.float32
    assert computed_in(torch.float32, DOUBLE) == torch.float64
    assert computed_in(torch.bool, WIDE) == torch.int32
    assert all(torch.promote_types(narrow, wide) == wide for narrow, wide in WIDER.items())
    with pytest.raises(KeyError):
        computed_in(torch.int64, REAL)


@pytest.mark.parametrize("version", ["1.9.0", "1.30.1"])
def test_without_its_packages_it_says_what_to_install(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "It needs onnx, and onnxruntime 1.32 or newer: pip install 'torch-keel[onnxruntime]'."
    monkeypatch.setattr(keel_onnxruntime, "find_spec", lambda name: None if name == "onnx" else find_spec("keel"))
    assert backend.probe() == wanted
    monkeypatch.setattr(keel_onnxruntime, "find_spec", lambda name: find_spec("keel"))
    monkeypatch.setattr(keel_onnxruntime, "_version", lambda: version)
    assert backend.probe() == wanted
    monkeypatch.setattr(keel_onnxruntime, "_version", lambda: "1.32.0.dev1")
    assert backend.probe() is None


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


def test_the_plugin_has_as_few_lines_as_its_page_says() -> None:
    """The tables are left out: a row more, or a reason, is not a plugin that is harder to write."""
    folder = Path(keel_onnxruntime.__file__).parent
    tables = {folder / "refused.py", *(Path(str(room.__file__)) for room in ROOMS)}
    assert sum(code_lines(path) for path in folder.glob("*.py") if path not in tables) <= 250
