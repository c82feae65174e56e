"""A process group of two: this process, and a peer forked from it that runs the same program in eager PyTorch.

The peer draws values of its own, makes the same collectives in the same order, and is ended with the program. Nothing
of the group is left behind.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from keel.opset import MEMBERS

from .context import Context

ops: Any = torch.ops._c10d_functional
SIZE = 2
PATIENCE = timedelta(seconds=20)
"""How long this process waits for its peer, which computes at once."""
LONG = timedelta(seconds=600)
"""How long the peer waits for this process, which may have to compile first; it is ended with the program."""
SEED = 7919


@dataclass(frozen=True)
class Group:
    """``rank`` is 0 in the process of the backend and 1 in its peer; ``name`` is what collectives take."""

    rank: int
    name: str

    def meet(self, ctx: Context, call: int) -> None:
        """One more collective, outside the program: it finds another one's partner where the program made too few."""
        sent = torch.full((4, 3), 100.0 * call + 10 * self.rank + 1)
        received = waited(ops.all_reduce.default(sent, "sum", self.name))
        ctx.record(f"met after call {call}", received, "contract.collectives.C2")


Body = Callable[[Context, Group], None]


def can_meet() -> bool:
    """Whether this machine has what a group needs."""
    return hasattr(os, "fork") and dist.is_available() and dist.is_gloo_available()


def waited(x: Tensor) -> Tensor:
    result: Tensor = ops.wait_tensor.default(x)
    return result


def together(body: Body, ctx: Context) -> None:
    """Runs the program in both processes; the context records what this one sees."""
    if not MEMBERS["all_reduce"].targets:  # to ask imports what tells the types of their results
        raise RuntimeError("This PyTorch has no functional collectives.")
    with TemporaryDirectory(prefix="keel-group-") as folder:
        peer = _forked(
            lambda: _joined(
                body, Context(lambda fn, **how: fn, ctx.clause, ctx.seed + SEED, ctx.calls), 1, Path(folder), LONG
            )
        )
        try:
            _joined(body, ctx, 0, Path(folder), PATIENCE)
        finally:
            os.kill(peer, signal.SIGKILL)  # until it is waited for its number is nobody else's
            os.waitpid(peer, 0)


def _joined(body: Body, ctx: Context, rank: int, folder: Path, patience: timedelta) -> None:
    store = dist.FileStore(str(folder / "meet"), SIZE)  # type: ignore[attr-defined]  # not in its __all__
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=patience)
    try:
        body(ctx, Group(rank, dist.group.WORLD.group_name))  # type: ignore[union-attr]
    finally:
        dist.destroy_process_group()


def _forked(work: Callable[[], None]) -> int:
    """Runs ``work`` in a forked process and returns its id. The child closes the files of this process, so that a
    reader of a pipe does not wait for the child.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that threads of this process are not in the other
        pid = os.fork()
    if pid:
        return pid
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        torch.set_num_threads(1)
        work()
    finally:
        os._exit(0)
