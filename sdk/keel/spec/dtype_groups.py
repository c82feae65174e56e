"""Groups of dtypes that declarations share."""

from __future__ import annotations

import torch

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (*HALVES, torch.float32, torch.float64)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
BOOLS = (torch.bool,)
REALS = (*FLOATS, *INTS)
NUMBERS = (*REALS, *COMPLEX)
ALL = (*NUMBERS, *BOOLS)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
