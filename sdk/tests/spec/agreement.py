"""How a decomposition is judged: against eager in float64, by eager's own error."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from keel.spec import decomposition_of


def agree(op: Any, *args: Any, **kwargs: Any) -> None:
    """The decomposition's error against float64 is at most twice the operator's own (plus two ulps), special values
    equal.
    """

    def double(a: Any) -> Any:
        if isinstance(a, list | tuple):
            return type(a)(map(double, a))
        if not isinstance(a, torch.Tensor) or not (a.is_floating_point() or a.is_complex()):
            return a
        return a.to(torch.complex128 if a.is_complex() else torch.float64)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's versions differ in what they warn of
        want = op(*map(double, args), **{k: double(v) for k, v in kwargs.items()})
        eager, ours = op(*args, **kwargs), decomposition_of(op)(*args, **kwargs)
    for w, e, o in zip(*(x if isinstance(x, tuple | list) else (x,) for x in (want, eager, ours)), strict=True):
        if w is None:
            assert o is None
            continue
        assert (o.dtype, o.shape) == (e.dtype, e.shape), f"{op}: {o.dtype} {o.shape}, not {e.dtype} {e.shape}"
        if o.dtype == torch.bool:
            assert torch.equal(o, e), f"{op}: {o}, not {e}"
            continue
        torch.testing.assert_close(torch.isnan(o), torch.isnan(e))
        finite = torch.isfinite(w)
        scale = w[finite].abs().max() if finite.any() else torch.tensor(0.0)
        ulps = 16 if o.dtype in (torch.float64, torch.complex128) else 2  # float64 has no better judge than itself
        floor = ulps * torch.finfo(o.dtype).eps * scale if o.is_floating_point() or o.is_complex() else 0
        theirs, mine = (((x.to(w.dtype) - w)[finite].abs().max() if finite.any() else floor) for x in (e, o))
        assert mine <= 2 * theirs + floor, f"{op}: {mine} against eager's {theirs}"
