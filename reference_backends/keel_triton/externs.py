"""Operators that Triton's kernels leave to PyTorch's own CUDA libraries."""
from __future__ import annotations

from collections.abc import Mapping

from keel import Extern

EXTERNS: Mapping[str, Extern] = {}
