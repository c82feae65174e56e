"""Index errors that kernels detect: where kernels record them, when they are read, and the error that is raised.

On a CPU, the record is read after each kernel. A GPU writes it to host memory, which is read when a part begins and
ends, without waiting for the device. An error that a kernel records later is raised by the next call. Only a part's
first call, and every call with KEEL_CHECK=1, waits. On other devices the record is copied to the host at the end of
each call.
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
"""The recorded values by site, 0 for no error."""


def host_error_buffer(sites: int) -> tuple[torch.Tensor, Look]:
    """Host memory for this number of sites, and a view for reading it."""
    memory = torch.zeros(sites, dtype=torch.int64, device="cpu")
    return memory, memory.numpy().data


def index_error(sites: Sequence[CheckSite], look: Look, sizes: Mapping[str, Any], *, late: bool = False) -> BadIndex:
    """The error for the first of ``sites`` with a recorded value. ``sizes`` has the values of symbols."""
    number, recorded = next((i, x) for i, x in enumerate(look) if x)
    site, value = sites[number], recorded - 1 if recorded > 0 else recorded
    try:
        bound = str(evaluate(site.bound, sizes))
    except KeyError:
        bound = format_size(site.bound)
    low = f"-{bound}" if site.wrap else "0"
    do = f"Valid indices are at least {low} and less than {bound}."
    if late:
        do += " The device recorded the error in this call or an earlier one. "
        do += "Set KEEL_CHECK=1 to wait for the device in each call."
    return BadIndex(
        "bad-index",
        f"{site.operator}: index {value} is out of bounds for a dimension of size {bound}.",
        None,
        site.line,
        do,
    )


def error_buffer(sites: Sequence[CheckSite], device: torch.device) -> tuple[torch.Tensor, Callable[[bool], None]]:
    """Memory in which kernels on ``device`` record errors, and a function that reads it and raises
    KeelError[bad-index]. The function is called with False before a call's kernels and with True after them.
    """
    return _shared(sites) if device.type == "cuda" else _polled_buffer(sites, device)


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


def _polled_buffer(sites: Sequence[CheckSite], device: torch.device) -> tuple[torch.Tensor, Callable[[bool], None]]:
    memory = torch.zeros(len(sites), dtype=torch.int64, device=device)

    def settle(after: bool) -> None:
        if after and any(look := memory.tolist()):
            memory.zero_()
            raise index_error(sites, look, {})

    return memory, settle
