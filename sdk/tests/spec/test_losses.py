"""Losses, forward and backward, in every reduction, as eager gives them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import MEMBERS, decomposition_of

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
REDUCTIONS = [0, 1, 2]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def elementwise() -> list[tuple[str, list[Any], list[Any]]]:
    """(name, x and target, what comes after the reduction)"""
    x, t = torch.randn(6, 5) * 3, torch.randn(6, 5) * 3
    return [
        ("mse_loss", [x, t], []),
        ("huber_loss", [x, t], [1.5]),
        ("smooth_l1_loss", [x, t], [0.7]),
        ("smooth_l1_loss", [x, t], [0.0]),
        ("soft_margin_loss", [x * 6, t.sign()], []),
    ]


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_elements(reduction: int, dtype: torch.dtype) -> None:
    for name, given, rest in elementwise():
        args = [*(x.to(dtype) for x in given), reduction, *rest]
        forward, backward = getattr(aten, name).default, getattr(aten, f"{name}_backward").default
        agree(forward, *args)
        agree(backward, torch.randn_like(forward(*args)), *args)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_probabilities(reduction: int) -> None:
    x, t, w = torch.rand(6, 5), torch.rand(6, 5), torch.rand(6, 5)
    for dtype in (F32, F64, BF16):
        for weight in (None, w.to(dtype)):
            args = (x.to(dtype), t.to(dtype), weight, reduction)
            agree(aten.binary_cross_entropy.default, *args)
            grad = torch.randn_like(aten.binary_cross_entropy(*args))
            agree(aten.binary_cross_entropy_backward.default, grad, *args)
            agree(
                aten.binary_cross_entropy_with_logits.default,
                20 * args[0] - 10,
                args[1],
                weight,
                torch.rand(5).to(dtype),
                reduction,
            )


def test_certain_probabilities_do_not_divide_by_zero() -> None:
    x, t = torch.tensor([0.0, 1.0, 1e-30, 0.5]), torch.tensor([1.0, 0.0, 1.0, 0.5])
    for dtype in (F32, F64):
        got, eager = (
            f(torch.ones(4, dtype=dtype), x.to(dtype), t.to(dtype), None, 0)
            for f in (decomposition_of(aten.binary_cross_entropy_backward.default), aten.binary_cross_entropy_backward)
        )
        torch.testing.assert_close(got, eager, rtol=1e-7 if dtype == F32 else 1e-15, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(reduction: int, weighted: bool) -> None:
    x, target, weight = torch.randn(6, 5), torch.randint(0, 5, (6,)), torch.rand(5) if weighted else None
    target[2] = -100
    agree(aten.nll_loss_forward.default, x, target, weight, reduction, -100)
    agree(aten.nll_loss_forward.default, x[0], target[0], weight, reduction, -100)
    agree(aten.nll_loss_forward.default, x, torch.full((6,), -100), weight, reduction, -100)
    images, targets = torch.randn(2, 5, 3, 4), torch.randint(0, 5, (2, 3, 4))
    agree(aten.nll_loss2d_forward.default, images, targets, weight, reduction, 1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multi_margin_loss(reduction: int, p: int, weighted: bool) -> None:
    x, target, weight = torch.randn(6, 5), torch.randint(0, 5, (6,)), torch.rand(5) if weighted else None
    for given, to in ((x, target), (x[0], target[0])):
        for dtype in (F32, F64):
            args = (given.to(dtype), to, p, 1.5, None if weight is None else weight.to(dtype), reduction)
            agree(aten.multi_margin_loss.default, *args)
            grad = torch.randn_like(aten.multi_margin_loss(*args))
            agree(aten.multi_margin_loss_backward.default, grad, *args)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin_loss(reduction: int) -> None:
    """Targets behind the first -1 do not count, and one that is listed twice counts twice."""
    x = torch.randn(6, 5) * 3
    target = torch.tensor(
        [[3, 0, -1, 1, 1], [1, -1, -1, -1, -1], [-1] * 5, [0, 1, 2, 3, 4], [4, -1, 2, 3, 1], [2, 2, -1, 0, 0]]
    )
    for given, to in ((x, target), (x[0], target[0])):
        for dtype in (F32, F64):
            args = (given.to(dtype), to, reduction)
            agree(aten.multilabel_margin_loss_forward.default, *args)
            out, listed = aten.multilabel_margin_loss_forward(*args)
            agree(aten.multilabel_margin_loss_backward.default, torch.randn_like(out), *args, listed)


# -- a linear map and its cross-entropy -------------------------------------------------------------------------------


def chunked(name: str = "") -> Any:
    pytest.importorskip("torch.nn.modules.linear_cross_entropy", reason="this PyTorch has no linear_cross_entropy")
    return getattr(torch.ops.torch_nn, f"_linear_cross_entropy_batch_chunked{name}").default


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_linear_cross_entropy(reduction: str, weighted: bool, dtype: torch.dtype) -> None:
    """Against PyTorch's chunks in float64, by its own error in ``dtype``."""
    op, target = chunked(), torch.tensor([0, 1, -100, 3, 4, 2])
    given = [torch.randn(6, 4), torch.randn(5, 4), torch.randn(5), torch.rand(5) if weighted else None]

    def run(f: Any, to: torch.dtype, accurate: torch.dtype) -> Any:
        x, w, bias, weight = (None if t is None else t.to(dtype).to(to) for t in given)
        return f(x, w, target, bias, weight, reduction, -100, 0.0, 2, "balanced", accurate, False, True, True, True)

    want, eager, ours = run(op, F64, F64), run(op, dtype, F32), run(decomposition_of(op), dtype, F32)
    for w, e, o in zip(want, eager, ours, strict=True):
        assert (o.dtype, o.shape) == (e.dtype, e.shape)
        floor = 2 * torch.finfo(dtype).eps * w.abs().max()
        assert (o - w).abs().max() <= 2 * (e - w).abs().max() + floor


def test_linear_cross_entropy_of_samples() -> None:
    op, x, w, target = chunked("_no_reduction"), torch.randn(6, 4), torch.randn(5, 4), torch.tensor([0, 1, 9, 3, 4, 2])
    got = decomposition_of(op)(x, w, target, None, None, 9, 2, "balanced", F32)
    torch.testing.assert_close(
        got, torch.nn.functional.cross_entropy(x @ w.t(), target, ignore_index=9, reduction="none")
    )


PROBABILITIES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


@pytest.mark.skipif(not PROBABILITIES, reason="PyTorch 2.15 is the first whose chunks take probabilities as targets")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_linear_cross_entropy_of_probabilities(reduction: str, weighted: bool) -> None:
    x, w, b = torch.randn(6, 3), torch.randn(4, 3), torch.randn(4)
    target, weight = torch.rand(6, 4).softmax(1), torch.rand(4) if weighted else None
    args = (x, w, target, b, weight, reduction, -100, 0.0, 2, "balanced", F32, False, True, True, True)
    torch.testing.assert_close(decomposition_of(chunked())(*args), chunked()(*args))
    each = (x, w, target, b, weight, -100, 2, "balanced", F32)
    op = chunked("_no_reduction")
    torch.testing.assert_close(decomposition_of(op)(*each), op(*each))


def test_gradients_that_are_not_wanted_are_empty() -> None:
    args = (
        torch.randn(6, 4),
        torch.randn(5, 4),
        torch.randint(0, 5, (6,)),
        None,
        None,
        "sum",
        -100,
        0.0,
        2,
        "balanced",
        F32,
        False,
        False,
        True,
        False,
    )
    assert [tuple(t.shape) for t in decomposition_of(chunked())(*args)] == [(), (0, 0), (5, 4), (0,)]


def test_ctc_loss_stays_outside_with_its_reason() -> None:
    for name in ("ctc_loss", "ctc_loss_backward"):
        assert MEMBERS[name].kind == "opaque" and MEMBERS[name].reason
        assert all(decomposition_of(t) is None for t in MEMBERS[name].targets)


@pytest.mark.slow
def test_written_out_with_symbols_for_sizes() -> None:
    x, target = torch.randn(6, 5), torch.randint(0, 5, (6,))
    for name, given, rest in elementwise()[:3]:
        forward = getattr(aten, name).default
        same_written_out(forward, *given, 1, *rest)
        same_written_out(getattr(aten, f"{name}_backward").default, torch.tensor(0.5), *given, 1, *rest)
    same_written_out(aten.nll_loss_forward.default, x, target, torch.rand(5), 1, -100)
    same_written_out(
        chunked(),
        x,
        torch.randn(7, 5),
        target,
        torch.randn(7),
        None,
        "mean",
        -100,
        0.0,
        2,
        "balanced",
        F32,
        False,
        True,
        False,
        True,
    )
    # PyTorch has no types for these with symbols, so it writes them out itself or refuses.
    same_written_out(aten.multi_margin_loss.default, x, target, symbolic=False)
    same_written_out(aten.multi_margin_loss_backward.default, torch.tensor(0.5), x, target, 2, 1.5, symbolic=False)
