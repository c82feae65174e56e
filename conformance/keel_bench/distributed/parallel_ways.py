"""Ways to train the decoder with several processes: what each one has of its parameters and of a batch.

Under DDP the whole decoder is compiled, and PyTorch cuts its graph where a bucket of gradients is full. In the other
ways blocks are compiled one by one, and the head with the loss: that is how PyTorch's own trainer does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from .decoder import Decoder, Sizes

Compile = Callable[[nn.Module], nn.Module]
"""Gives a module back compiled, or as it is."""
DATA, TENSOR = "data", "tensor"
"""Dimensions of meshes."""


@dataclass(frozen=True)
class Way:
    """``apply`` changes a model for a mesh, and compiles it. ``tensor`` is how many processes share each layer, None if
    all do; those that share layers see the same rows. It needs at least as many as ``processes``.
    """

    apply: Callable[[Decoder, DeviceMesh, Sizes, Compile], nn.Module]
    tensor: int | None = 1
    processes: int = 2


def replicated(model: Decoder, mesh: DeviceMesh, sizes: Sizes, compiled: Compile) -> nn.Module:
    group = mesh[DATA].get_group()
    return compiled(DistributedDataParallel(model, process_group=group, bucket_cap_mb=sizes.bucket_mb))


def sharded(model: Decoder, mesh: DeviceMesh, sizes: Sizes, compiled: Compile) -> nn.Module:
    in_blocks(model, compiled)
    for block in [*model.blocks, model.head]:
        fully_shard(block, mesh=mesh[DATA])
    fully_shard(model, mesh=mesh[DATA])
    return model


def tensor_parallel(model: Decoder, mesh: DeviceMesh, sizes: Sizes, compiled: Compile) -> nn.Module:
    split_layers(model, mesh[TENSOR])
    in_blocks(model, compiled)
    return model


def both(model: Decoder, mesh: DeviceMesh, sizes: Sizes, compiled: Compile) -> nn.Module:
    split_layers(model, mesh[TENSOR])
    return sharded(model, mesh, sizes, compiled)


WAYS: Mapping[str, Way] = {
    "ddp": Way(replicated),
    "fsdp2": Way(sharded),
    "tp": Way(tensor_parallel, tensor=None),
    "fsdp2-tp": Way(both, tensor=2, processes=4),
}


def mesh_of(way: Way, device: str, processes: int) -> DeviceMesh:
    """A mesh of all processes. Its dimensions are ``DATA`` and ``TENSOR``."""
    sharing = way.tensor or processes
    return init_device_mesh(device, (processes // sharing, sharing), mesh_dim_names=(DATA, TENSOR))


def share(rows: Tensor, mesh: DeviceMesh) -> Tensor:
    """The rows of a whole batch that this process sees."""
    return rows.chunk(mesh[DATA].size())[mesh[DATA].get_local_rank()]


def in_blocks(model: Decoder, compiled: Compile) -> None:
    for name, block in list(model.blocks.named_children()):
        model.blocks.register_module(name, compiled(block))
    model.register_module("embedding", compiled(model.embedding))
    model.register_module("head", compiled(model.head))


def split_layers(model: Decoder, mesh: DeviceMesh) -> None:
    """Heads and hidden features are divided among processes, and between layers the tokens of a row are."""
    plan: dict[str, Any] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "head.norm": SequenceParallel(),
        "head.logits": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    each: dict[str, Any] = {
        "first": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
        ),
        **{f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")},
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "second": SequenceParallel(),
        "perceptron": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "perceptron.gate": ColwiseParallel(),
        "perceptron.up": ColwiseParallel(),
        "perceptron.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    plan |= {f"blocks.{number}.{name}": style for number in range(len(model.blocks)) for name, style in each.items()}
    parallelize_module(model, mesh, plan)
