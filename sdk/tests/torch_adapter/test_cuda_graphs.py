"""When a graph's calls begin to be recorded."""

from __future__ import annotations

from typing import Any

import pytest

from keel.torch_adapter.cuda_graphs import later


@pytest.mark.parametrize("undecided", [0, 1, 2, 5])
def test_recording_waits_for_the_first_call_and_for_all_that_decide(undecided: int) -> None:
    calls: list[str] = []

    def first(args: list[Any]) -> str:
        calls.append("plain")
        return "plain"

    def made() -> Any:
        calls.append("made")
        return lambda args: "recorded"

    run = later(first, lambda: len(calls) >= undecided, made)
    plain = max(1, undecided)
    assert [run([]) for _ in range(8)] == ["plain"] * plain + ["recorded"] * (8 - plain)
    assert calls == ["plain"] * plain + ["made"]
