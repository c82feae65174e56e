"""Attention of every kernel's form: results, logsumexp and gradients, and the types that are promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from keel.graph.decompose import decompose_call
from keel.spec import MEMBERS, decomposition_of
from keel.torch_adapter.recorder import fake_mode_of

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
FORMS = {
    "flash": "_scaled_dot_product_flash_attention",
    "efficient": "_scaled_dot_product_efficient_attention",
    "cudnn": "_scaled_dot_product_cudnn_attention",
    "overrideable": "_scaled_dot_product_fused_attention_overrideable",
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def pair(form: str) -> tuple[Any, Any]:
    return getattr(aten, FORMS[form]).default, getattr(aten, f"{FORMS[form]}_backward").default


def forward_arguments(form: str, q: Any, k: Any, v: Any, bias: Any, causal: bool) -> tuple[Any, ...]:
    return {
        "flash": (q, k, v, 0.0, causal),
        "efficient": (q, k, v, bias, True, 0.0, causal),
        "cudnn": (q, k, v, bias, True, 0.0, causal),
        "overrideable": (q, k, v, bias, 0.0, causal),
    }[form]


def backward_arguments(
    form: str, grad: Any, q: Any, k: Any, v: Any, bias: Any, saved: Sequence[Any], causal: bool
) -> tuple[Any, ...]:
    out, lse, *rest = saved
    match form:
        case "flash":
            return grad, q, k, v, out, lse, *rest[:4], 0.0, causal, *rest[4:6]
        case "efficient":
            return grad, q, k, v, bias, out, lse, *rest, 0.0, [True] * 4, causal
        case "cudnn":
            return grad, q, k, v, out, lse, *rest[4:6], bias, *rest[:4], 0.0, causal
    return grad, q, k, v, bias, [True] * 4, out, lse, *rest[:4], 0.0, causal, *rest[4:6]


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_forward_and_backward_are_autograds(form: str, causal: bool, heads: int) -> None:
    """The pair in float64 against autograd of the plain definition; ``heads`` of keys and values for 4 of queries."""
    q, k, v = (
        torch.randn(2, n, length, 16, dtype=F64, requires_grad=True) for n, length in ((4, 9), (heads, 9), (heads, 9))
    )
    bias = None if form == "flash" else torch.randn(2, 4, 9, 9, dtype=F64, requires_grad=True)
    mask = torch.zeros(9, 9, dtype=F64)
    if causal:
        mask = mask.masked_fill(torch.ones(9, 9).triu(1).bool(), -float("inf"))
    scores = q @ k.repeat_interleave(4 // heads, 1).mT / 4 + mask + (0 if bias is None else bias)
    want = scores.softmax(-1) @ v.repeat_interleave(4 // heads, 1)
    grad = torch.randn_like(want)
    given = [x for x in (q, k, v, bias) if x is not None]
    gradients = torch.autograd.grad(want, given, grad)
    forward, backward = map(decomposition_of, pair(form))
    with torch.no_grad():
        saved = forward(*forward_arguments(form, q, k, v, bias, causal))
        got = backward(*backward_arguments(form, grad, q, k, v, bias, saved, causal))
    torch.testing.assert_close(saved[0], want)
    torch.testing.assert_close(saved[1].reshape(2, 4, -1)[..., :9], scores.logsumexp(-1))
    for g, w in zip(got, gradients, strict=False):
        torch.testing.assert_close(g, w)


@pytest.mark.parametrize("form", FORMS)
def test_types_are_those_promised(form: str) -> None:
    """Of heads that lie behind tokens in memory, on a device; strides and what stands for random state included."""
    forward, backward = pair(form)
    if not backward.has_kernel_for_dispatch_key(torch._C.DispatchKey.Meta):
        pytest.skip("This PyTorch has no fake kernel of the backward, so no traced graph holds it.")

    def both(q: Any, k: Any, v: Any, bias: Any, grad: Any) -> Any:
        saved = forward(*forward_arguments(form, q, k, v, bias, False))
        return backward(*backward_arguments(form, grad, q, k, v, bias, saved, False))

    with FakeTensorMode():
        q, k, v, grad = (torch.empty(2, n, 4, 16, device="cuda", dtype=BF16).transpose(1, 2) for n in (40, 56, 56, 40))
        bias = torch.empty_strided((2, 4, 40, 56), (4 * 40 * 64, 40 * 64, 64, 1), device="cuda", dtype=BF16)
        gm = make_fx(both, tracing_mode="real")(q, k, v, None if form == "flash" else bias, grad)
    nodes = [n for n in gm.graph.nodes if n.target in (forward, backward)]
    assert len(nodes) == 2
    for node in nodes:
        assert decompose_call(node, decomposition_of(node.target), fake_mode_of(gm))


def test_dropout_is_refused() -> None:
    q = torch.randn(1, 2, 4, 8)
    for form in FORMS:
        forward, _ = pair(form)
        args = forward_arguments(form, q, q, q, None, False)
        assert decomposition_of(forward)(*(0.5 if isinstance(a, float) else a for a in args)) is NotImplemented


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_fewer_heads_of_keys(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, n, 9, 16, dtype=dtype) for n in (8, 2, 2))
    forward, backward = (
        getattr(aten, f"_scaled_dot_product_flash_attention_for_cpu{end}").default for end in ("", "_backward")
    )
    agree(forward, q, k, v)
    out, lse = forward(q, k, v)
    agree(backward, torch.randn_like(out), q, k, v, out, lse, 0.0, False)


@pytest.mark.slow
def test_written_out_with_symbols_for_sizes() -> None:
    q, k, v = (torch.randn(3, 2, n, 16) for n in (9, 7, 7))
    forward, backward = (
        getattr(aten, f"_scaled_dot_product_flash_attention_for_cpu{end}").default for end in ("", "_backward")
    )
    same_written_out(forward, q, k, v)
    out, lse = forward(q, k, v)
    same_written_out(backward, torch.randn_like(out), q, k, v, out, lse, 0.0, False)


# -- sequences laid end to end ----------------------------------------------------------------------------------------


def one_by_one(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends_q: list[int], ends_k: list[int], causal: bool, left: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention of each sequence, the diagonal ending in its last corner; (outputs, logsumexp)."""
    outs, sums = [], []
    for a, b, c, d in zip(ends_q, ends_q[1:], ends_k, ends_k[1:], strict=False):
        scores = torch.einsum("qhd,khd->hqk", q[a:b], k[c:d]) / q.shape[-1] ** 0.5
        row, column = torch.arange(b - a)[:, None] + (d - c) - (b - a), torch.arange(d - c)[None, :]
        seen = torch.ones(b - a, d - c, dtype=torch.bool)
        seen = seen & (column <= row) if causal else seen
        seen = seen & (column >= row - left) if left >= 0 else seen
        scores = scores.masked_fill(~seen, -float("inf"))
        outs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[c:d]))
        sums.append(scores.logsumexp(-1))
    return torch.cat(outs), torch.cat(sums, 1)


@pytest.mark.parametrize("left", [-1, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_varlen(causal: bool, left: int) -> None:
    ends_q, ends_k = [0, 3, 8, 12], [0, 4, 9, 13]
    q, k, v = (torch.randn(n, 2, 8, dtype=F64, requires_grad=True) for n in (12, 13, 13))
    want, sums = one_by_one(q, k, v, ends_q, ends_k, causal, left)
    grad = torch.randn_like(want)
    gradients = torch.autograd.grad(want, (q, k, v), grad)
    cum = [torch.tensor(e, dtype=torch.int32) for e in (ends_q, ends_k)]
    forward, backward = (
        decomposition_of(getattr(aten, f"_flash_attention_{end}").default) for end in ("forward", "backward")
    )
    windows = {"window_size_left": left, "window_size_right": -1}
    with torch.no_grad():
        out, lse, state, more, debug = forward(q, k, v, *cum, 5, 5, 0.0, causal, False, **windows)
        got = backward(grad, q, k, v, out, lse, *cum, 5, 5, 0.0, causal, state, more, **windows)
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(lse, sums)
    assert (state.dtype, state.shape, debug.numel()) == (torch.uint64, (2,), 0)
    for g, w in zip(got, gradients, strict=True):
        torch.testing.assert_close(g, w)


def test_a_batch_of_tokens_before_heads() -> None:
    q, k, v = (torch.randn(2, n, 3, 8, dtype=F64) for n in (5, 7, 7))
    out, lse, *_ = decomposition_of(aten._flash_attention_forward.default)(q, k, v, None, None, 5, 7, 0.0, False, False)
    want = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)))
    torch.testing.assert_close(out, want.transpose(1, 2))
    assert lse.shape == (2, 3, 5)


def test_the_public_function_of_unequal_lengths_is_a_member() -> None:
    known = MEMBERS["varlen_attention"].targets  # the first use registers it
    op = torch.ops.torch_attn._varlen_attn.default
    assert op in known
    q, cum = torch.randn(9, 2, 8, dtype=F64), torch.tensor([0, 4, 9], dtype=torch.int32)
    out, lse, _ = decomposition_of(op)(q, q, q, cum, cum, 5, 5, True)
    want, sums = one_by_one(q, q, q, [0, 4, 9], [0, 4, 9], True, -1)
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(lse, sums)


def test_flex_attention_is_asked_whole() -> None:
    for name in ("flex_attention", "flex_attention_backward"):
        op = MEMBERS[name]
        assert op.kind == "primitive" and op.profile == "attention" and op.targets
        assert decomposition_of(op.targets[0]) is None
