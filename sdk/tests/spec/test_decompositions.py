"""Keel's own decompositions give what the composite gives, as accurately as it does."""

import pytest
import torch

from keel.spec import OPSET, decomposition_of

from .agreement import agree

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("op", [aten.var_mean.correction, aten.var.correction, aten.std.correction], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize(
    ("shape", "dim", "keywords"),
    [
        ((4, 33), [1], {}),
        ((4, 33), [1], {"correction": 0, "keepdim": True}),
        ((2, 3, 65), [0, 2], {"correction": 2}),
        ((2, 17), None, {}),
        ((), None, {"correction": 0}),
        ((3, 1), [1], {}),
        ((3, 2), [-1], {"correction": 5}),
    ],
)
def test_variance(op, dtype, shape, dim, keywords):
    agree(op, torch.randn(shape, dtype=dtype) + 3, dim, **keywords)


def test_variance_far_from_zero_does_not_cancel():
    agree(aten.var.correction, torch.randn(4, 4096) * 1e-2 + 1e3, [1])


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_variance_of_special_values_is_nan(special):
    x = torch.randn(3, 5)
    x[1, 2] = special
    agree(aten.var.correction, x, [1])


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("targets", [[1, 2, -100, 6, 0], [-100] * 5])
def test_nll_loss_backward(reduction, weighted, targets):
    x, target = torch.randn(5, 7), torch.tensor(targets)
    weight = torch.rand(7) if weighted else None
    out, total = aten.nll_loss_forward(x, target, weight, reduction, -100)
    agree(aten.nll_loss_backward.default, torch.randn_like(out), x, target, weight, reduction, -100, total)


def test_nll_loss_backward_of_a_lone_sample():
    x, target = torch.randn(7), torch.tensor(3)
    out, total = aten.nll_loss_forward(x, target, None, 1, -100)
    agree(aten.nll_loss_backward.default, torch.randn_like(out), x, target, None, 1, -100, total)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss2d_backward(reduction):
    x, target = torch.randn(2, 7, 3, 4), torch.randint(0, 7, (2, 3, 4))
    target[0, 1, 2] = -100
    out, total = aten.nll_loss2d_forward(x, target, None, reduction, -100)
    agree(aten.nll_loss2d_backward.default, torch.randn_like(out), x, target, None, reduction, -100, total)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("causal", "mask", "scale"), [(False, None, None), (True, None, 0.3), (False, "float", None)])
def test_attention_forward_and_backward(dtype, causal, mask, scale):
    q, k, v, grad = (torch.randn(2, 3, 9, 16, dtype=dtype) for _ in range(4))
    given = {"scale": scale, "attn_mask": torch.randn(2, 1, 9, 9, dtype=dtype) if mask else None}
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    agree(forward, q, k, v, 0.0, causal, **given)
    out, lse = forward(q, k, v, 0.0, causal, **given)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    agree(backward, grad, q, k, v, out, lse, 0.0, causal, **given)


def test_a_query_that_sees_no_key_gives_zero():
    q, k, v = (torch.randn(1, 1, 4, 8) for _ in range(3))
    mask = torch.zeros(1, 1, 4, 4)
    mask[0, 0, 2] = -INF
    agree(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v, attn_mask=mask)
    assert not decomposition_of(aten._scaled_dot_product_flash_attention_for_cpu.default)(q, k, v, attn_mask=mask)[0][
        0, 0, 2
    ].any()


def test_every_composite_says_what_holds():
    for op in OPSET.values():
        assert op.doc and (op.reason if op.kind == "opaque" else op.clauses), op.name
