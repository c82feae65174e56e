"""Frequencies of real numbers are what real numbers have."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan

CASES = [c for c in plan(profile="strict", tier="standard", ops=("fft_c2r",)) if c.kind == "op"]


@pytest.mark.parametrize("dims", ["both", "backwards", "three"])
def test_over_several_dimensions_they_are_symmetric(dims: str) -> None:
    """There and back is the identity: what libraries that read half of such a plane make of it does not matter."""
    several = [c for c in CASES if c.levels["dims"] == dims and c.dtype == "c128"]
    assert len(several) > 5
    for case in several:
        inputs = draw_inputs(case, 0)
        x, over, norm, _ = inputs.args
        real = torch.ops.aten._fft_c2r.default(*inputs.args)
        back = torch.fft.rfftn(real, dim=over, norm=("forward", "ortho", "backward")[norm])
        torch.testing.assert_close(back, x, rtol=1e-9, atol=1e-9 * float(x.abs().max()))
