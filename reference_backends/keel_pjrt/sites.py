"""One call while it is lowered: its types, its operands as arrays, and the checks that it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax
from torch import Tensor

from keel.opset import Op

FLOAT_INFO: Any = jnp.finfo
Lowering = Callable[..., Any]
"""A function of a site and of the arguments by the names of the overload's parameters."""


def jax_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return jnp.dtype(str(dtype).removeprefix("torch."))


@dataclass
class Site:
    """A call. ``types`` has its arguments by parameter name, tensors as types; ``results`` have fake tensors."""

    op: Op
    types: Mapping[str, Any]
    results: Sequence[Tensor | None]
    overload: str
    checks: list[tuple[Array, str]] = field(default_factory=list)

    @property
    def out(self) -> Tensor:
        """The first result."""
        assert self.results[0] is not None
        return self.results[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the first result."""
        return tuple(self.out.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the first result."""
        return jax_dtype(self.out.dtype)

    def operands(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with operands in the dtype in which the operator computes."""
        compute = self.op.compute.of(self.types) if self.op.compute is not None else None
        return {
            name: converted(value if isinstance(value, Array) else hidden(value), jax_dtype(compute))
            if compute is not None and name in self.op.operands and value is not None
            else value
            for name, value in arguments.items()
        }

    def inside(self, index: Array, size: int, lowest: int = 0) -> Array:
        """The index, of which it is checked when the part runs that it is in bounds."""
        wrong = (index < lowest) | (index >= size)
        self.checks.append((wrong, f"an index is out of bounds for a dimension of size {size}."))
        return jnp.where(index < 0, index + size, index)


def hidden(number: Any) -> Array:
    """A number as an array that XLA's simplifier does not see through. It would make x of ``(x + 1) - 1``, and
    of ``x + 0``, also where x is -0.
    """
    array: Array = lax.optimization_barrier(jnp.asarray(number))
    return array


def converted(x: Array, dtype: Any) -> Array:
    """An array in a dtype. Bools are selected: XLA would make 0 of the product of a converted False and infinity."""
    if x.dtype == bool and np.dtype(dtype) != bool:
        return jnp.where(x, jnp.ones((), dtype), jnp.zeros((), dtype))
    return x.astype(dtype)


def widened(x: Any) -> Any:
    """16-bit floats as float32, in which operators compute."""
    return x.astype(jnp.float32) if isinstance(x, Array) and x.dtype in (jnp.float16, jnp.bfloat16) else x


def in_float32(lowering: Lowering) -> Lowering:
    """A lowering that computes 16-bit floats in float32; its results are rounded once."""
    return lambda site, **arguments: lowering(site, **{name: widened(value) for name, value in arguments.items()})


def is_float(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def is_integer(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.integer))


def flushed(x: Array) -> Array:
    """Numbers below the normal ones as zeros. XLA's code for a CPU takes them for 0 in some operations only, so that a
    function of several would follow neither arithmetic. It computes float16 in float32, where no such number is small.
    """
    if not is_float(x) or x.dtype == jnp.float16:
        return x
    return jnp.where(jnp.abs(x) < FLOAT_INFO(x.dtype).tiny, jnp.copysign(jnp.zeros_like(x), x), x)


def ranks_of(x: Array) -> Array:
    """Integers in the order of numbers, NaN last and zeros equal. XLA itself would take subnormal numbers for 0."""
    if not is_float(x):
        return x.astype(jnp.int8) if x.dtype == bool else x
    width = 8 * x.dtype.itemsize
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"int{width}"))
    most = np.asarray((1 << (width - 1)) - 1, bits.dtype)
    ranks = jnp.where(bits < 0, -(bits & most), bits)
    return jnp.where(jnp.isnan(x), most, ranks)
