"""Doubts of data sheets: what differs between backends counts, and what all have in common does not."""

from __future__ import annotations

import pytest
import torch

from keel_bench.uncertainty import LEAST, MOST, blocks, doubts


def test_blocks_run() -> None:
    for title, (fn, args) in blocks("cpu"):
        with torch.no_grad():
            assert torch.isfinite(fn(*args)).all(), title


def test_what_all_take_more_is_no_doubt() -> None:
    said = {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 2.0, "y": 3.0}}
    took = {
        name: {title: 1.5 * (1 + (title == "y")) * seconds for title, seconds in each.items()}
        for name, each in said.items()
    }
    assert doubts(said, took) == {"a": LEAST, "b": LEAST}


def test_what_one_takes_more_is() -> None:
    said = {name: {"x": 1.0, "y": 1.0} for name in "abc"}
    took = {"a": {"x": 1.0, "y": 1.0}, "b": {"x": 1.0, "y": 1.3}, "c": {"x": 1.0, "y": 1.0}}
    found = doubts(said, took)
    assert LEAST < found["a"] == found["c"] < found["b"] < 0.3
    took["b"]["y"] = 100.0
    assert doubts(said, took)["b"] == MOST


def test_a_backend_by_itself_is_held_to_its_own_mean() -> None:
    assert doubts({"a": {"x": 1.0, "y": 1.0}}, {"a": {"x": 2.0, "y": 2.0}}) == {"a": LEAST}
    assert doubts({"a": {"x": 1.0, "y": 1.0}}, {"a": {"x": 1.0, "y": 1.5}})["a"] == pytest.approx(0.2027, rel=1e-3)
    assert doubts({"a": {}}, {"a": {}}) == {"a": MOST}
