"""All kernels through Triton's interpreter, on the CPU.  ``test_interpreted`` runs this in a process of its own, for
whether Triton interprets is settled when it is imported."""
from __future__ import annotations

import pytest
import torch

from .cases import Case, cases, check
from .kernels import kernel
from .scalars import FLOATS, INTS, check_casts, check_ops

# The lanes past the end of a block compute too, on whatever is there.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_kernel(case: Case) -> None:
    check(case, kernel(case.kernel, **{s: v if case.static else None for s, v in case.sizes}), "cpu")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
def test_scalar_ops(dtype: torch.dtype) -> None:
    assert check_ops(dtype, "cpu") == []


def test_casts() -> None:
    assert check_casts("cpu", rounding=False) == []
