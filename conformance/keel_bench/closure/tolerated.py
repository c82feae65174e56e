"""Whose numbers are not compared with float64, and why; whose may be farther off than twice eager's, and why."""

from __future__ import annotations

from collections.abc import Mapping

UNDEFINED: Mapping[str, str] = dict.fromkeys(
    (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    ),
    "Its values are whatever the memory held.",
)
"""OpInfos whose results have no defined values."""

ALLOWED: Mapping[str, str] = {
    "nn.functional.interpolate.bicubic": "PyTorch writes it out while it traces, before anybody can take it "
    "whole, and sums weights from powers: up to "
    "2.1 times eager's error where 4 elements become 2.",
}
"""OpInfos whose error may be above the bar, each with the reason."""
