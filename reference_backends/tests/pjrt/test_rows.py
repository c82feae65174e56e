"""Which calls the PJRT backend takes, and the sentences of what it refuses; none of this needs JAX to be installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import keel_pjrt
from keel import Call, TensorType
from keel.opset import MEMBERS
from keel.testing import refusal
from keel_pjrt import backend
from keel_pjrt.rows import REFUSED, ROWS

aten = torch.ops.aten
F32, F64, I64, BOOL = torch.float32, torch.float64, torch.int64, torch.bool
PAGE = Path(__file__).parents[3] / "docs" / "how" / "run-on-pjrt.md"


def tensor(*shape: int, dtype: torch.dtype = F32) -> TensorType:
    return TensorType.dense(dtype, shape)


def why(op: Any, *args: Any, out: TensorType | None = None, **kwargs: Any) -> str:
    return str(refusal(backend, Call(op, args, kwargs, (out or tensor(4),))))


def test_every_primitive_is_lowered_or_refused() -> None:
    primitives = {op.name for op in MEMBERS.values() if op.kind == "primitive"}
    assert {*ROWS, *REFUSED} == primitives
    assert not ROWS.keys() & REFUSED.keys()


def test_the_page_has_each_refused_primitive_with_its_reason() -> None:
    text = PAGE.read_text()
    for name, reason in REFUSED.items():
        row = next(line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line)
        assert reason in row
    lowered = next(line for line in text.splitlines() if line.startswith("| lowered"))
    assert str(len(ROWS)) in lowered


def test_a_call_that_is_not_lowered_is_refused_in_a_sentence() -> None:
    x, flags = tensor(4), tensor(4, dtype=BOOL)
    assert why(aten.silu.default, x) == "pjrt takes aten.silu.default only as the primitives that it decomposes to."
    assert why(aten.nonzero.default, x).startswith("pjrt refuses aten.nonzero.default: the number of its results")
    assert "PyTorch's generator" in why(aten.rand.default, [4])
    assert "with masks" in why(aten.index.Tensor, x, [flags])
    assert "not row-major" in why(aten.as_strided.default, TensorType(F32, (2, 2), (1, 2), x.device), [2], [1])
    assert "on complex64" in why(aten.abs.default, tensor(4, dtype=torch.complex64))
    assert "on float64" in why(aten.addcmul.default, *[tensor(4, dtype=F64)] * 3, out=tensor(4, dtype=F64))
    eight = tensor(4, dtype=torch.float8_e5m2)
    assert "on float8_e5m2: JAX" in why(aten._to_copy.default, eight, dtype=F32)
    assert refusal(backend, Call(aten.exp.default, (x,), {}, (x,))) is None


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keel_pjrt, "find_spec", lambda name: None)
    assert backend.probe() == "It needs jax: pip install 'torch-keel[pjrt]'."


@pytest.mark.slow
def test_the_plugin_is_imported_without_jax() -> None:
    code = "import sys, keel_pjrt; keel_pjrt.backend.probe(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
