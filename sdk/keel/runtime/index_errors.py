"""What the checks of kernels found: where they record it, when it is looked at, the error that it becomes.

On a CPU every kernel's checks are looked at after it.  A GPU writes them to memory of the host, which is looked at when
a part begins and ends, without waiting: what a kernel finds later is raised by the next call.  Only a part's first
call, and every call with KEEL_CHECK=1, waits.  Other devices are asked at the end of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from keel.errors import BadIndex
from keel.loops.symbolic_sizes import evaluate, format_size
from keel.runtime.contract_checks import is_checking_every_call
from keel.schedule.tensor_graph import CheckSite

Look = Sequence[int]
"""What was recorded, by site: 0 for nothing."""


def host_error_buffer(sites: int) -> tuple[torch.Tensor, Look]:
    """Memory on the host for that many sites, and a look at it."""
    memory = torch.zeros(sites, dtype=torch.int64, device="cpu")
    return memory, memory.numpy().data


def index_error(sites: Sequence[CheckSite], look: Look, sizes: Mapping[str, Any], *, late: bool = False) -> BadIndex:
    """The error for the first of ``sites`` that something is recorded of.  ``sizes`` has the values of symbols."""
    number, found = next((i, x) for i, x in enumerate(look) if x)
    site, value = sites[number], found - 1 if found > 0 else found
    try:
        bound = str(evaluate(site.bound, sizes))
    except KeyError:
        bound = format_size(site.bound)
    low = f"-{bound}" if site.wrap else "0"
    do = f"An index of it is at least {low} and less than {bound}."
    if late:
        do += " The device found it during this call or one before; KEEL_CHECK=1 waits for it in each."
    return BadIndex(
        "bad-index", f"{site.operator} is given the index {value} of a dimension of size {bound}.", None, site.line, do
    )


def error_buffer(sites: Sequence[CheckSite], device: torch.device) -> tuple[torch.Tensor, Callable[[bool], None]]:
    """Memory that kernels on ``device`` record in, and what looks at it: called with False before a call's kernels and
    with True after them, it raises KeelError[bad-index]."""
    return _shared(sites) if device.type == "cuda" else _asked(sites, device)


def _shared(sites: Sequence[CheckSite]) -> tuple[torch.Tensor, Callable[[bool], None]]:
    memory = torch.zeros(len(sites), dtype=torch.int64, device="cpu", pin_memory=True)
    look: Look = memory.numpy().data
    waits = True

    def settle(after: bool) -> None:
        nonlocal waits
        if after and waits and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
            waits = is_checking_every_call()
        if any(look):
            error = index_error(sites, look, {}, late=True)
            memory.zero_()
            raise error

    return memory, settle


def _asked(sites: Sequence[CheckSite], device: torch.device) -> tuple[torch.Tensor, Callable[[bool], None]]:
    memory = torch.zeros(len(sites), dtype=torch.int64, device=device)

    def settle(after: bool) -> None:
        if after and any(look := memory.tolist()):
            memory.zero_()
            raise index_error(sites, look, {})

    return memory, settle
