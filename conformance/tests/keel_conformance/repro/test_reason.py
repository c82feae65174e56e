"""A minimized case has to fail for the same reason, not counting numbers and names of nodes."""

from __future__ import annotations

import pytest

from keel_conformance.repro.replay import reason
from keel_conformance.results.verdict import Verdict

WRONG = "It raised while running: KeelError: KeelError[wrong-result]: acme broke the contract of part p0. "


def raised(sentence: str) -> Verdict:
    return Verdict("case", "fail", "raises", sentence)


def test_other_sizes_and_nodes_are_the_same_reason() -> None:
    assert reason(raised(f"{WRONG}%getitem: Its strides are [8, 1], not [1, 5].")) == reason(
        raised(f"{WRONG}%getitem_3: Its strides are [2, 1], not [1, 2].")
    )


@pytest.mark.parametrize(
    "other",
    [
        f"{WRONG}%getitem: Its shape is [1], not [2].",
        f"{WRONG}%getitem: Its dtype is torch.float16, not torch.float32.",
        "It raised while running: RuntimeError: out of range",
    ],
)
def test_another_error_is_another_reason(other: str) -> None:
    assert reason(raised(f"{WRONG}%getitem: Its strides are [8, 1], not [1, 5].")) != reason(raised(other))
