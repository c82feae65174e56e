"""Which cases tell a control, which computes nothing, from a backend that computes."""

from __future__ import annotations

import torch

from keel.opset import MEMBERS
from keel_conformance.cases import trivial
from keel_conformance.cases.case import Case
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.harness.backend_worker import overload
from keel_conformance.harness.protocol import DRAWS
from keel_conformance.pytree import tensor_leaves

from .null_backends import MEANT

NUMBERS = 64
"""Fewer numbers than this drawn at random may be any."""


def has_decided_values(case: Case) -> bool:
    """Whether results of a case have elements whose values are decided."""
    if case.op == "empty":
        return False
    try:
        inputs = draw_inputs(case, 0)
        with torch.no_grad():
            result = overload(case.overload)(*inputs.args, **inputs.kwargs)
    except Exception:  # a case that eager PyTorch cannot run does not discriminate
        return False
    least = NUMBERS if "random" in MEMBERS[case.op].tags else 1
    return any(x.numel() >= least for x in tensor_leaves(result))


def is_expected_pass(control: str, case: Case) -> bool:
    """Whether a case that a control passes bears no value that could tell: see ``null_backends.MEANT``."""
    if case.op in MEANT[control] or not has_decided_values(case):
        return True
    inputs = draw_inputs(case, 0)
    return control == "identity" and not inputs.tensors


def is_right_by_chance(control: str, case: Case) -> bool:
    """Whether it bears none, or the control is right: eager PyTorch gives the same for each call of the case."""

    def right(call: int) -> bool:
        inputs = draw_inputs(case, call)
        known = trivial.trivial_outcomes(overload(case.overload), inputs.args, inputs.kwargs)
        return known is not None and control in known[0]

    return is_expected_pass(control, case) or all(map(right, range(max(DRAWS) + 1)))
