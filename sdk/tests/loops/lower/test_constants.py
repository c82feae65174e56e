"""What a definition computes from constants alone."""

from __future__ import annotations

import torch

from keel.loops.ir import Apply

from .calls import lowered

aten = torch.ops.aten


def test_choices_by_constants_are_resolved() -> None:
    """gcc does not vectorize a loop in which they are left."""
    x, y = torch.randn(8), torch.randn(8)
    for weight in (0.3, 0.5, -0.2, 0.49999999999):
        definition = lowered(aten.lerp.Scalar, x, y, weight)
        assert not isinstance(definition, str)
        assert not [s for s in definition.steps if isinstance(s, Apply) and s.op in ("where", "lt", "abs")]
    definition = lowered(aten.lerp.Tensor, x, y, y)
    assert not isinstance(definition, str) and [s for s in definition.steps if isinstance(s, Apply) and s.op == "where"]
