"""Real programs to begin with: packages, graphs that PyTorch saves, and folders of graphs that failed."""

from __future__ import annotations

import gc
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import keel

from ..fallbacks import setting
from .mutate import zipped
from .stub_backends import ELSEWHERE, backends


class Mixed(nn.Module):
    """Parts of two backends, a size that is a symbol, a buffer that is written, a library call and a view."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.register_buffer("calls", torch.zeros(()))
        for weight in self.parameters():
            nn.init.constant_(weight, 0.5)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> Any:
        self.calls += 1
        y = self.norm(self.linear(x).softmax(-1)) * scale
        return {"y": y[:, 1:], "t": y.t(), "sums": [y.cumsum(0), (y - 1).sort(-1).values, y.size(0) * 2]}


class Plain(nn.Module):
    """One part of loops, with an index that is checked and a size that is not a symbol."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
        return (x.index_select(0, at).exp() / 3).sum(-1), x.amax()


def packages() -> list[bytes]:
    """A package for this machine, and one for others, whose parts are compiled when it is loaded."""
    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="keel-fuzz-") as folder:
        warnings.simplefilter("ignore")
        mixed = torch.export.export(
            Mixed().eval(),
            (torch.ones(4, 8),),
            {"scale": torch.ones(8)},
            dynamic_shapes={"x": rows, "scale": None},
        )
        plain = torch.export.export(Plain(), (torch.ones(6, 5), torch.tensor([1, 2])))
        results = []
        for number, (program, targets) in enumerate([(mixed, ()), (plain, (ELSEWHERE,))]):
            path = Path(folder, f"{number}.keel")
            keel.package(program, path, backends=backends(), targets=targets)
            results.append(path.read_bytes())
        return results


# -- graphs that PyTorch saves ----------------------------------------------------------------------------------------


@cache
def states() -> tuple[Mapping[str, Any], ...]:
    """What PyTorch saves of a forward graph with mutations and of its backward graph."""
    options: Any = {"backends": list(backends())}
    with (
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory(prefix="keel-fuzz-") as folder,  # a graph of a cache would call machine code
        setting("KEEL_CACHE_DIR", folder),
        setting("TORCHINDUCTOR_CACHE_DIR", f"{folder}/torch"),
        setting("KEEL_GRAPH_CACHE", "torch"),
    ):
        warnings.simplefilter("ignore")
        step = torch.compile(Mixed(), backend="keel", options=options, fullgraph=True)
        step(torch.ones(4, 8), scale=torch.ones(8))
        before = _saved()  # which live on, so that no other one gets the id of one of them
        results = step(torch.ones(6, 8), scale=torch.ones(8))  # the number of rows becomes a symbol
    new = {id(each): each for each in _saved()}
    for each in before:
        new.pop(id(each), None)
    states = [each.__reduce__()[1][0] for each in new.values()]
    del results
    made = {str(state["kind"]): state for state in states}
    return made["forward"], made["backward"]


def _saved() -> list[Any]:
    """The compiled graphs in this process that PyTorch can save, and pickles."""
    return [each for each in gc.get_objects() if type(each).__name__ == "SavedGraph"]


def saved_graphs() -> list[bytes]:
    """The bytes in these states: the number of the state, the compiled graph and its mutations."""
    return [
        zipped({"state": b"%d" % k, "graph": s["graph"], "mutations.json": (s["mutations"] or "null").encode()})
        for k, s in enumerate(states())
    ]


# -- graphs that failed -----------------------------------------------------------------------------------------------


def repros() -> list[bytes]:
    """The folder that KEEL_REPRO leaves of a graph that fails, as an archive."""
    with (
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory(prefix="keel-fuzz-") as folder,
        setting("KEEL_REPRO", folder),
    ):
        warnings.simplefilter("ignore")
        failing = replace(backends()[-1], name="failing", last_resort=False, compile=_fail)
        keel.compile(Plain(), backends=[failing, *backends()])(torch.ones(6, 5), torch.tensor([1, 2]))
        return [zipped({p.name: p.read_bytes() for p in sorted(left.iterdir())}) for left in Path(folder).iterdir()]


def _fail(gm: torch.fx.GraphModule) -> Any:
    raise NotImplementedError("This backend compiles nothing.")
