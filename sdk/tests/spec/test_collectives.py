"""Collectives do what their clauses say, between two processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from keel.graph.calls import type_of
from keel.spec import MEMBERS
from keel.spec.bind import bound
from keel.torch_adapter import has_effect

from .test_types import agrees
from .written_out import pieces

SIZE = 2


def given(rank: int) -> torch.Tensor:
    return torch.arange(8.0).reshape(4, 2) * (rank + 1) + rank


def run(rank: int, folder: str) -> None:
    """What each process does: results are left in a file."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=SIZE)
    ops, group, x = torch.ops._c10d_functional, dist.group.WORLD.group_name, given(rank)  # type: ignore[union-attr]
    wait: Callable[[Any], Any] = ops.wait_tensor
    found = {f"all_reduce {op}": wait(ops.all_reduce(x, op, group)) for op in ("sum", "min", "max", "product")}
    found["all_gather"] = wait(ops.all_gather_into_tensor(x, SIZE, group))
    found["reduce_scatter"] = wait(ops.reduce_scatter_tensor(x, "sum", SIZE, group))
    splits = [[1, 2], [3, 2]][rank]
    found["all_to_all"] = wait(ops.all_to_all_single(x, splits, [[1, 3], [2, 2]][rank], group))
    found["broadcast"] = wait(ops.broadcast(x, 1, group))
    found["plain"] = wait(x)
    found["given"] = x
    torch.save(found, f"{folder}/{rank}")
    dist.destroy_process_group()


def test_two_processes(tmp_path: Path) -> None:
    mp.start_processes(run, args=(str(tmp_path),), nprocs=SIZE, start_method="fork")  # imports nothing new
    results = [torch.load(tmp_path / str(r)) for r in range(SIZE)]
    a, b = given(0), given(1)
    for rank, found in enumerate(results):
        own = [a, b][rank]
        assert torch.equal(found["all_reduce sum"], a + b) and torch.equal(found["all_reduce product"], a * b)
        assert torch.equal(found["all_reduce min"], torch.minimum(a, b))
        assert torch.equal(found["all_reduce max"], torch.maximum(a, b))
        assert torch.equal(found["all_gather"], torch.cat([a, b]))
        assert torch.equal(found["reduce_scatter"], (a + b).chunk(SIZE)[rank])
        blocks = [torch.cat([a[:1], b[:2]]), torch.cat([a[1:], b[2:]])]
        assert torch.equal(found["all_to_all"], blocks[rank])
        assert torch.equal(found["broadcast"], b)
        assert torch.equal(found["plain"], own) and torch.equal(found["given"], own)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("all_reduce_coalesced", ([torch.zeros(3), torch.zeros(2, 4)], "sum", "world")),
        ("all_gather_into_tensor_coalesced", ([torch.zeros(3), torch.zeros(2, 4)], 4, "world")),
        ("reduce_scatter_tensor_coalesced", ([torch.zeros(8), torch.zeros(4, 2)], "sum", 4, "world")),
    ],
)
def test_several_at_once_are_each_of_them(name: str, args: tuple[Any, ...]) -> None:
    one = name.removesuffix("_coalesced")
    assert pieces(MEMBERS[name].targets[0], *args, symbolic=False) == {MEMBERS[one].overloads[0]}


def test_all_are_effects_in_order() -> None:
    for op in MEMBERS.values():
        if op.family == "collectives":
            assert {"collective", "effect"} <= op.tags and all(map(has_effect, op.targets)), op.name


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("all_reduce", (torch.zeros(3), "premul_sum", "world")),
        ("reduce_scatter_tensor", (torch.zeros(3), "sum", 2, "g")),
        ("reduce_scatter_tensor", (torch.zeros(()), "sum", 2, "g")),
        ("all_to_all_single", (torch.zeros(3), [1, 1], [1, 1], "g")),
        ("batch_p2p_ops", (["isend", "wave"], [0, 0], [0, 0], [torch.zeros(1)] * 2, "g")),
    ],
    ids=range(5),
)
def test_preconditions(name: str, args: tuple[Any, ...]) -> None:
    op = MEMBERS[name]
    if not op.targets:
        pytest.skip(f"This PyTorch has no {name}.")
    types = [type_of(a) if isinstance(a, torch.Tensor) else a for a in args]
    assert any(not r.holds(bound(op.targets[0], types, {})) for r in op.requires)


def test_a_gathered_scalar_has_one_dimension() -> None:
    op = MEMBERS["all_gather_into_tensor"]
    (got,) = op.types(bound(op.targets[0], [type_of(torch.zeros(())), 4, "world"], {}))
    assert agrees(type_of(torch.zeros(4)), got)
