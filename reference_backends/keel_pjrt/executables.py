"""Programs that PJRT has compiled, which run on the memory of PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from torch import Tensor, fx
from torch.utils.dlpack import from_dlpack

from keel import KeelError
from keel.plugin import PreparedConstants
from keel_pjrt.sites import jax_dtype
from keel_pjrt.traced_parts import Program

EXACT: dict[str, str | bool] = {"xla_allow_excess_precision": False}
"""Conversions to 16 bits and back round: XLA may otherwise leave them out."""


@dataclass(frozen=True)
class Executable:
    """A compiled part. ``order`` says where each placeholder's array comes from: its constant, or the next input."""

    compiled: Any
    device: Any
    order: Sequence[str | None]
    messages: Sequence[str]

    def run(self, constants: Mapping[str, Array], *inputs: Tensor) -> tuple[Tensor | None, ...]:
        """Raises KeelError[bad-index] if an index, which is data, was out of bounds."""
        rest = iter(inputs)
        with jax.enable_x64(True):
            arrays = [self.array(next(rest)) if name is None else constants[name] for name in self.order]
            results = list(self.compiled(*arrays))
            if self.device.platform != "cpu":
                results = jax.device_put(results, jax.devices("cpu")[0])
            jax.block_until_ready(results)  # an input may be written to as soon as the call has returned
            if self.messages:
                raise_first(self.messages, results.pop())
            return tuple(tensor(result) for result in results)

    def array(self, x: Tensor) -> Array:
        """The tensor's memory as an array on the device; XLA copies it if it is not aligned."""
        dense = x.detach().resolve_conj().resolve_neg().contiguous()
        if 1 in x.shape:  # a stride of such a dimension may be any number, by which JAX would choose another layout
            dense = dense.view(-1).view(x.shape)
        array: Array = jax.dlpack.from_dlpack(dense)
        if self.device.platform != "cpu":
            array = jax.device_put(array, self.device)
        return array

    def prepare(self, constants: Mapping[str, Tensor]) -> dict[str, Array]:
        with jax.enable_x64(True):
            return {name: self.array(x) for name, x in constants.items()}


def tensor(array: Array | None) -> Tensor | None:
    return None if array is None else from_dlpack(array)


def raise_first(messages: Sequence[str], failed: Array) -> None:
    for message, is_wrong in zip(messages, failed.tolist(), strict=True):
        if is_wrong:
            raise KeelError("bad-index", message, do="Valid indices are at least 0 and less than the size.")


def compile_part(gm: fx.GraphModule, constants: Collection[str], options: Mapping[str, Any]) -> PreparedConstants | Any:
    """A part whose constants are arrays that are made once for each version of them."""
    device = jax.devices(options["platform"])[0]
    inputs = list(gm.graph.find_nodes(op="placeholder"))
    program = Program(gm)
    with jax.enable_x64(True), jax.default_matmul_precision(options["precision"]):
        shapes = [argument(node.meta["val"], device) for node in inputs]
        compiled = jax.jit(program, keep_unused=True).lower(*shapes).compile(compiler_options=EXACT)
    order = [node.name if node.name in constants else None for node in inputs]
    made = Executable(compiled, device, order, tuple(program.messages))
    return PreparedConstants(made.prepare, made.run)


def argument(like: Tensor, device: Any) -> jax.ShapeDtypeStruct:
    place = jax.sharding.SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct(tuple(like.shape), jax_dtype(like.dtype), sharding=place)
