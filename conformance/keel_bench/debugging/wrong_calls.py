"""What a defect does to a call: it changes the result, or ends the call in one of several ways."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Change = Callable[[Any], Any]


def first_tensor(change: Callable[[Tensor], Tensor]) -> Change:
    """The change of a result, or of the first one of several. Results that are not floats are left as they are."""

    def changed(result: Any) -> Any:
        if isinstance(result, tuple | list):
            return type(result)((changed(result[0]), *result[1:])) if result else result
        is_float = isinstance(result, Tensor) and result.is_floating_point() and result.numel()
        return change(result) if is_float else result

    return changed


def scaled(x: Tensor) -> Tensor:
    """Each element is too large by three percent."""
    return x * 1.03


def shifted(x: Tensor) -> Tensor:
    """Each row begins with its last element."""
    return x.roll(1, -1) if x.dim() else x + 1


def cut_short(x: Tensor) -> Tensor:
    """The last element of each row is 0."""
    x = x.clone()
    x.reshape(-1)[-1:].zero_() if not x.dim() else x.select(-1, -1).zero_()
    return x


def coarse(x: Tensor) -> Tensor:
    """Each element is rounded to eight bits."""
    return x.bfloat16().to(x.dtype)


def unsigned(x: Tensor) -> Tensor:
    """Each element has lost its sign."""
    return x.abs()


def not_a_number(x: Tensor) -> Tensor:
    """The first element is NaN."""
    x = x.clone()
    x.reshape(-1)[:1] = float("nan")
    return torch.where(torch.arange(x.numel(), device=x.device).reshape(x.shape) == 0, float("nan"), x)


def doubled(x: Tensor) -> Tensor:
    """The result is in float64."""
    return x.double()


def failing(x: Tensor) -> Tensor:
    """The call raises an error."""
    raise RuntimeError("The vendor's library has no kernel for these sizes.")


def aborting(x: Tensor) -> Tensor:
    """The process ends, as after a failed assertion in C."""
    os.abort()


def leaving(x: Tensor) -> Tensor:
    """The process ends with a status that says that all is well."""
    os._exit(0)


def spinning(x: Tensor) -> Tensor:
    """The call does not end, and uses the processor."""
    while True:
        pass


def sleeping(x: Tensor) -> Tensor:
    """The call does not end, and waits."""
    while True:
        time.sleep(1)


def hungry(x: Tensor) -> Tensor:
    """The call allocates memory until the system refuses."""
    held = [torch.zeros(2**26) for _ in range(2**10)]
    return x + held[0][0]


WRONG: Mapping[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f for f in (scaled, shifted, cut_short, coarse, unsigned)
}
"""Changes that give wrong numbers."""
ENDS: Mapping[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f for f in (failing, aborting, leaving, spinning, sleeping, hungry)
}
"""Changes after which a call gives no result."""
OTHERS: Mapping[str, Callable[[Tensor], Tensor]] = {f.__name__: f for f in (not_a_number, doubled)}
CHANGES: Mapping[str, Change] = {n: first_tensor(f) for n, f in {**WRONG, **ENDS, **OTHERS}.items()}
KINDS: Mapping[str, str] = {
    **dict.fromkeys(WRONG, "wrong"),
    "not_a_number": "nan",
    "doubled": "type",
    "failing": "raises",
    "aborting": "crash",
    "leaving": "crash",
    "spinning": "hang",
    "sleeping": "hang",
    "hungry": "memory",
}
"""The kind of failure that a change shows as."""
