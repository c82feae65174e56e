"""Graphs with results that are not values: the mesh of a distributed tensor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import keel


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.compiler.reset()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("backends", [["interp", "eager"], ["eager"]], ids=str)
def test_a_mesh_made_anew_is_returned_as_the_graphs_attribute(one_process: None, backends: list[str]) -> None:
    """PyTorch remembers how equal meshes shard, and returns the first mesh, which is not an input of the second
    graph.
    """
    for _ in range(2):
        mesh = init_device_mesh("cpu", (1,))
        x = distribute_tensor(torch.arange(6.0).view(2, 3), mesh, [Shard(0)])
        y = distribute_tensor(torch.ones(3, 2), mesh, [Replicate()])
        torch.compiler.reset()
        result = keel.compile(lambda x, y: (x @ y).redistribute(placements=[Replicate()]) * 2, backends=backends)(x, y)
        assert isinstance(result, DTensor) and type(result.device_mesh) is DeviceMesh and result.device_mesh == mesh
        assert result.to_local().tolist() == [[6, 6], [24, 24]]
