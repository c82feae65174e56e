"""What stays outside is little, has reasons, and is not decomposed."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from keel.spec import MEMBERS, decomposition_of

aten = torch.ops.aten
OPAQUE = {name: op for name, op in MEMBERS.items() if op.kind == "opaque"}


def test_there_are_at_most_40_names() -> None:
    assert 0 < len(OPAQUE) <= 40


@pytest.mark.parametrize("name", OPAQUE)
def test_each_has_a_reason_and_no_decomposition(name: str) -> None:
    op = OPAQUE[name]
    assert op.doc.endswith(".") and op.reason is not None and op.reason.endswith(".")
    assert all(decomposition_of(target) is None for target in op.targets)


@pytest.mark.skipif(torch.__version__ < "2.13", reason="an older PyTorch lacks some of them")
@pytest.mark.parametrize("name", OPAQUE)
def test_each_is_an_operator_of_this_pytorch(name: str) -> None:
    assert OPAQUE[name].targets


def test_reasons_that_speak_of_tracing_are_true() -> None:
    with FakeTensorMode():
        x = torch.empty(3, 3)
        for call in (lambda: aten.equal(x, x), lambda: aten.allclose(x, x)):
            with pytest.raises(DataDependentOutputException):
                call()
        with pytest.raises(DynamicOutputShapeException):
            aten.linalg_lstsq(x, x)


def test_what_reasons_offer_instead_means_the_same() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.pinv(a) @ b, aten.linalg_lstsq(a, b)[0])
    assert bool(torch.eq(a, a).all()) is aten.equal(a, a)
    assert bool(torch.isclose(a, a + 1e-12).all()) is aten.allclose(a, a + 1e-12)
