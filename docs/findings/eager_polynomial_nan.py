"""Eager polynomials (Chebyshev's u and w, say) of degree 2 and more at NaN return memory that was never written."""

import sys

import torch

x, degree = torch.full((4,), torch.nan, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
found = torch.special.chebyshev_polynomial_w(x, degree)
print("expected", [torch.nan] * 4)
print("eager   ", found.tolist())
sys.exit(0 if found.isnan().all() else 1)
