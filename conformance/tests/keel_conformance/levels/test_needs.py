"""What is recorded of a model, and how it is read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from keel import KeelError
from keel_conformance.levels.level_plan import judgeable
from keel_conformance.levels.needs import Needs, deciding_dtype, layout_of, needs_in, needs_of_program, write_needs


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (torch.empty(3, 4), "contiguous"),
        (torch.empty(4, 3).t(), "transposed"),
        (torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), "channels_last"),
        (torch.empty(2, 3, 4).permute(2, 1, 0), "reversed"),
        (torch.empty(1, 4).expand(3, 4), "expanded"),
        (torch.empty(3, 1).expand(3, 4), "expanded_last"),
        (torch.empty(3, 8)[:, ::2], "gapped"),
        (torch.empty(3, 8)[:, :5], "rows_apart"),
        (torch.empty(12)[3:], "offset"),
        (torch.empty(()), "contiguous"),
        (torch.empty(0, 3), "contiguous"),
    ],
)
def test_layouts_have_the_names_of_cases(x: torch.Tensor, expected: str) -> None:
    assert layout_of(x) == expected


def test_the_deciding_dtype_is_that_of_cases() -> None:
    assert deciding_dtype([torch.bool, torch.int64, torch.float32]) == torch.float32
    assert deciding_dtype([torch.bool, torch.int64]) == torch.int64
    assert deciding_dtype([torch.bool]) == torch.bool and deciding_dtype([]) is None


class _Small(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ y.t(), -1).argmax(-1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of torch.export, for itself
def test_a_program_needs_what_it_calls(tmp_path: Path) -> None:
    needs = needs_of_program(torch.export.export(_Small(), (torch.randn(3, 4), torch.randn(5, 4))))
    products = {op for op, _ in needs.pairs} & {"mm", "matmul"}  # which of the two is PyTorch's choice
    assert ("argmax", "f32") in needs.pairs and len(products) == 1 and not needs.dynamic
    assert "transposed" in needs.calls[products.pop()]["f32"]
    write_needs(tmp_path, needs)
    assert needs_in(tmp_path) == needs and needs_in(tmp_path / "nowhere") is None


def test_what_no_case_is_about_is_said() -> None:
    needs = Needs({"neg": {"f32": frozenset({"contiguous"}), "f9": frozenset({"contiguous"})}}, False, frozenset({"x"}))
    kept, left = judgeable(needs)
    assert kept.pairs == {("neg", "f32")} and left == ["x", "neg on f9"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", json.dumps({"calls": {"neg": {"f32": ["sideways"]}}, "dynamic": False, "outside": []})]
)
def test_a_file_of_other_content_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "needs.json").write_text(text)
    with pytest.raises(KeelError, match=r"cannot be read"):
        needs_in(tmp_path)
