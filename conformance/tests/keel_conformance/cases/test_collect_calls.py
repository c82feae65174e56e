"""Calls that are kept as data are those of the declarations, and those written by hand, as they are now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from keel_conformance.cases import collect_calls

MADE_WITH = "2.13"


@pytest.mark.skipif(
    not torch.__version__.startswith(MADE_WITH),
    reason=f"They are made with PyTorch {MADE_WITH}: others run other dtypes.",
)
@pytest.mark.parametrize(
    ("file", "made"), [("samples.json", collect_calls.declared), ("handwritten.json", collect_calls.by_hand)]
)
def test_what_is_kept_is_in_step(file: str, made: Callable[[], dict[str, list[dict[str, Any]]]]) -> None:
    kept = json.loads(Path(collect_calls.__file__).with_name(file).read_text())
    now = json.loads(json.dumps(made()))
    other = sorted(name for name in {*kept, *now} if kept.get(name) != now.get(name))
    assert not other, "The stored calls are out of date: run `make cases`."
