"""Whose numbers are not compared with float64, and why; whose may be farther off than twice eager's, and why."""

from __future__ import annotations

from collections.abc import Mapping

from keel.opset import MEMBERS, Results

_UNINITIALIZED = [
    overload.split(".")[1]
    for op in MEMBERS.values()
    if op.numerics.results is Results.UNINITIALIZED
    for overload in op.overloads
]
UNDEFINED: Mapping[str, str] = dict.fromkeys(
    (*_UNINITIALIZED, "resize_", "resize_as_"), "Its values are whatever the memory held."
)
"""OpInfos whose results have no defined values."""

ALLOWED: Mapping[str, str] = {
    "nn.functional.interpolate.bicubic": "PyTorch writes it out while it traces, before anybody can take it "
    "whole, and sums weights from powers: up to "
    "2.1 times eager's error where 4 elements become 2.",
}
"""OpInfos whose error may be above the bar, each with the reason."""
