"""Index errors that kernels detect: where kernels record them, when they are read, and the error that is raised.

On a CPU, the record is read after each kernel. A GPU writes it to host memory (``LoopTarget.writes_pinned``), which is
read when a part begins and ends, without waiting for the device. An error that a kernel records later is raised by the
next call. Only a part's first call, and every call with KEEL_CHECK=1, waits. On other devices the record is copied to
pinned memory at the end of each call, also without waiting; a device without pinned memory or events waits in each
call. A device graph records and copies as a call does, and the record is read after each replay, without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from keel.errors import BadIndex
from keel.loops.symbolic_sizes import evaluate, format_size
from keel.runtime.accelerators import is_capturing, synchronize
from keel.runtime.contract_checks import is_checking_every_call
from keel.schedule.tensor_graph import CheckSite
from keel.torch_adapter import captured_work

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


def error_buffer(
    sites: Sequence[CheckSite], device: torch.device, pinned: bool
) -> tuple[torch.Tensor, Callable[[bool], None]]:
    """Memory in which kernels on ``device`` record errors, and a function that reads it and raises
    KeelError[bad-index]. The function is called with False before a call's kernels and with True after them. The
    memory is on the host if kernels can write to ``pinned`` memory.
    """
    if pinned:
        return _shared(sites, device)
    try:
        arriving = _Arriving(len(sites), device)
    except RuntimeError:  # the device has no pinned memory, or no events; NotImplementedError is one too
        return _polled_buffer(sites, device)
    return arriving.memory, _settle_later(sites, arriving)


def _shared(sites: Sequence[CheckSite], device: torch.device) -> tuple[torch.Tensor, Callable[[bool], None]]:
    memory = torch.zeros(len(sites), dtype=torch.int64, device="cpu", pin_memory=True)
    look: Look = memory.numpy().data
    waits = True

    def read() -> None:
        if any(look):
            error = index_error(sites, look, {}, late=True)
            memory.zero_()
            raise error

    def settle(after: bool) -> None:
        nonlocal waits
        if (graph := captured_work()) is not None:
            graph.after_replay += [read] if after else []
            return
        if after and waits and not is_capturing([device]):
            synchronize([device])
            waits = is_checking_every_call()
        read()

    return memory, settle


class _Arriving:
    """A record in a device's memory, and pinned memory to which it is copied."""

    def __init__(self, sites: int, device: torch.device) -> None:
        self.memory = torch.zeros(sites, dtype=torch.int64, device=device)
        self._device = device
        self._pinned = torch.zeros(sites, dtype=torch.int64, device="cpu", pin_memory=True)
        self._event = torch.Event(device)
        self.look: Look = self._pinned.numpy().data
        self.copy()
        self.mark()

    def copy(self) -> None:
        """Copies the record, in the order of the device's work, and does not wait."""
        self._pinned.copy_(self.memory, non_blocking=True)

    def mark(self) -> None:
        """Marks the place behind the last copy in the device's work."""
        self._event.record(torch.accelerator.current_stream(self._device))

    def poll(self) -> None:
        """Lets a copy arrive on a device on which that takes a query."""
        self._event.query()

    def wait(self) -> None:
        self._event.synchronize()

    def clear(self) -> None:
        self.wait()  # a copy under way would bring the error again
        self.memory.zero_()
        self._pinned.zero_()


def _settle_later(sites: Sequence[CheckSite], record: _Arriving) -> Callable[[bool], None]:
    waits = True

    def read() -> None:
        if any(record.look):
            error = index_error(sites, record.look, {}, late=True)
            record.clear()
            raise error

    def replayed() -> None:
        record.poll()  # for what an earlier call has recorded
        record.mark()
        read()

    def settle(after: bool) -> None:
        nonlocal waits
        if (graph := captured_work()) is not None:
            if after:
                record.copy()
                graph.after_replay.append(replayed)
                graph.held.append(record)
            return
        if not after:
            record.poll()
        else:
            record.copy()
            record.mark()
            if waits:
                record.wait()
                waits = is_checking_every_call()
        read()

    return settle


def _polled_buffer(sites: Sequence[CheckSite], device: torch.device) -> tuple[torch.Tensor, Callable[[bool], None]]:
    memory = torch.zeros(len(sites), dtype=torch.int64, device=device)

    def settle(after: bool) -> None:
        if captured_work() is not None:
            raise RuntimeError("The device has no pinned memory or no events, so the host waits for its index checks.")
        if after and any(look := memory.tolist()):
            memory.zero_()
            raise index_error(sites, look, {})

    return memory, settle
