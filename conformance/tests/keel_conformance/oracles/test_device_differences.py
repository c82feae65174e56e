"""What another device may do otherwise than the host, and no host."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from keel import TensorType
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles.error_rules import flat
from keel_conformance.oracles.judge import judge

aten = torch.ops.aten


def status(name: str, overload: str, args: tuple[Any, ...], results: Any, device: str, **kwargs: Any) -> str:
    given = flat(results)
    types = tuple(TensorType.dense(r.dtype, tuple(r.shape), device) for r in given) if device != "cpu" else ()
    return judge(Case(name, "", "op", "core", overload), Inputs(args, kwargs), given, types=types, device=device).status


@pytest.mark.parametrize(
    ("device", "erf", "tanh"), [("cpu", "pass", "fail"), ("cuda", "fail", "pass"), ("privateuseone", "pass", "fail")]
)
def test_gelu_after_a_product(device: str, erf: str, tanh: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x, a, b = (torch.randn(n, generator=draw) for n in ((9,), (5, 7), (7, 9)))
    for want, how in ((erf, "none"), (tanh, "tanh")):
        result = torch.nn.functional.gelu(torch.addmm(x, a, b), approximate=how)
        assert (
            status("addmm_activation", "aten._addmm_activation.default", (x, a, b), result, device, use_gelu=True)
            == want
        )


@pytest.mark.parametrize(("device", "saved"), [("cpu", "fail"), ("cuda", "pass")])
def test_what_bags_keep_for_their_gradient(device: str, saved: str) -> None:
    args = (
        torch.randn(5, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([1, 2, 4]),
        torch.tensor([0, 2]),
        False,
        2,
    )
    out, bag, counts, rows = aten._embedding_bag.default(*args)
    name = ("embedding_bag", "aten._embedding_bag.default")
    assert status(*name, args, (out, bag, counts, rows), device) == "pass"
    assert status(*name, args, (out, bag, counts + 1, rows), device) == saved
    assert status(*name, args, (out + 1, bag, counts, rows), device) == "fail"


@pytest.mark.skipif(not hasattr(aten, "cholesky"), reason="PyTorch 2.14 and later have torch.linalg's alone")
def test_what_only_the_device_has_nobody_can_judge() -> None:
    x = -torch.eye(2)  # eager PyTorch raises at it
    for device, want in (("cuda", "not run"), ("cpu", "harness error")):
        assert status("cholesky_or_raise", "aten.cholesky.default", (x,), x, device) == want


def test_of_what_is_not_positive_definite_the_factor_is_open() -> None:
    x = torch.stack([torch.eye(2), -torch.eye(2)])
    factor, info = aten.linalg_cholesky_ex.default(x)
    unknown = factor.clone()
    unknown[1] = torch.nan
    name = ("cholesky", "aten.linalg_cholesky_ex.default")
    assert status(*name, (x,), (unknown, info), "cpu") == "pass"
    assert status(*name, (x,), (unknown.flip(0), info), "cpu") == "fail"


def cut(products: Tensor) -> Tensor:
    """The sum along the last dimension of what is left of each 32 products, and of the sum before them."""
    total = torch.zeros(products.shape[:-1], dtype=torch.float64)
    for some in products.split(32, -1):
        together = torch.cat([total[..., None], some], -1)
        unit = 2.0 ** (together.abs().amax(-1, keepdim=True).log2().floor() - 13)
        total = ((together / unit).trunc() * unit).sum(-1)
    return total


def test_products_of_float8_may_be_cut_but_not_much() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 256, generator=draw).to(torch.float8_e4m3fn) for n in (16, 64))
    one = torch.ones(())
    right = cut(a.double()[:, None] * b.double()).float()
    name, args = ("scaled_mm", "aten._scaled_mm.default"), (a, b.t(), one, one)
    for result, want in ((right, "pass"), (right * 1.01, "fail"), (right + 0.1, "fail")):
        assert status(*name, args, result, "cpu", out_dtype=torch.float32) == want
