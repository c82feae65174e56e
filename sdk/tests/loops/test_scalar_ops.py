"""Entries of a target's table of scalar ops, filled in."""

from __future__ import annotations

import pytest
import torch

from keel.loops.scalar_ops import ByKind, kind_of, scalar_text

NAMES = {torch.bool: "bool", torch.int32: "int", torch.float32: "float"}


def test_one_text_for_all_dtypes() -> None:
    assert scalar_text("({dtype})({0} + {1})", ["a", "b"], torch.int32, torch.int32, NAMES) == "(int)(a + b)"


def test_a_text_for_each_kind_is_chosen_by_the_operand_and_not_by_the_result() -> None:
    entry = ByKind(floating="fless({0}, {1})", integer="({0} < {1})")
    assert entry.kinds == ("floating", "integer")
    assert scalar_text(entry, ["a", "b"], torch.float32, torch.bool, NAMES) == "fless(a, b)"
    assert scalar_text(entry, ["a", "b"], torch.int32, torch.bool, NAMES) == "(a < b)"
    with pytest.raises(KeyError, match=r"no text for torch\.bool"):
        scalar_text(entry, ["a", "b"], torch.bool, torch.bool, NAMES)


def test_a_function_gets_the_operands_and_both_dtypes() -> None:
    def entry(args: list[str], operand: torch.dtype, result: torch.dtype) -> str:
        return f"{args} {operand} {result}"

    assert scalar_text(entry, ["a"], torch.int32, torch.bool, NAMES) == "['a'] torch.int32 torch.bool"


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(torch.bool, "boolean"), (torch.uint8, "integer"), (torch.float16, "floating"), (torch.complex64, "floating")],
)
def test_the_kind_of_a_dtype(dtype: torch.dtype, kind: str) -> None:
    assert kind_of(dtype) == kind
