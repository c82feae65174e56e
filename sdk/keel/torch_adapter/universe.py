"""PyTorch's own catalog of sample calls of its operators (OpInfo), as callables with inputs.

The catalog is part of PyTorch's test suite. It is imported on first use, which takes seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

from keel.errors import KeelError
from keel.torch_adapter.trace import aot_alone, assignments, trace

__all__ = ["Example", "aot_alone", "assignments", "dtype_of", "examples", "names", "supports_autograd", "trace"]

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
"""An operator is tried in the first of these dtypes that it supports."""


@dataclass(frozen=True)
class Example:
    """A sample call. ``fn(*inputs)`` returns a tuple of tensors; ``title`` shows the arguments to a reader.

    ``in_double`` returns the same call in float64 (complex128), including dtype arguments.
    """

    title: str
    fn: Callable[..., tuple[torch.Tensor, ...]]
    inputs: tuple[torch.Tensor, ...]
    in_double: Callable[[], Example]


@cache
def _catalog() -> dict[str, Any]:
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as e:
        raise KeelError(
            "not-here",
            "PyTorch's OpInfo catalog cannot be imported.",
            {"python": str(e)},
            do="Install what PyTorch's tests need: pip install expecttest.",
        ) from e
    return {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}


def names() -> tuple[str, ...]:
    """Every OpInfo of this PyTorch, ``name`` or ``name.variant``.  Raises KeelError[not-here]."""
    return tuple(_catalog())


def dtype_of(name: str, device: str = "cpu") -> torch.dtype | None:
    """The dtype in which an OpInfo is tried on ``device``; None if it supports none of ``DTYPES`` there."""
    supported = _catalog()[name].supported_dtypes(device)
    return next((d for d in DTYPES if d in supported), None)


def supports_autograd(name: str, device: str = "cpu") -> bool:
    """True if the OpInfo supports gradients on ``device``, in the dtype in which it is tried there."""
    op, dtype = _catalog()[name], dtype_of(name, device)
    return dtype is not None and op.supports_autograd and dtype in op.supported_backward_dtypes(device)


def examples(name: str, *, grad: bool, most: int | None = None, seed: int = 0, device: str = "cpu") -> list[Example]:
    """The samples of an OpInfo on ``device``: all, or ``most`` of them, evenly spaced.

    With ``grad``, inputs that can have gradients require them.  ``seed`` chooses the values; sizes and other arguments
    are the same for each.
    """
    op, dtype = _catalog()[name], dtype_of(name, device)
    if dtype is None:
        return []
    with _seeded(seed, device):  # sample_inputs reads the source of the whole call stack, in search of a unittest
        samples = list(op.sample_inputs_func(op, device, dtype, grad))
    if most is not None and most < len(samples):
        samples = [samples[i * len(samples) // most] for i in range(most)]
    return [_example(op, s) for s in samples]


def _example(op: Any, sample: Any) -> Example:
    flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]

    def made(flat: Sequence[Any]) -> Example:
        def fn(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs = list(flat)
            for i, t in zip(places, tensors, strict=True):
                inputs[i] = t
            first, args, kwargs = pytree.tree_unflatten(inputs, spec)
            result = op(first, *args, **kwargs)
            if any(t.requires_grad for t in tensors):  # the gradient of a result that is not unique cannot be compared
                result = sample.output_process_fn_grad(result)
            return tuple(v for v in pytree.tree_leaves(result) if isinstance(v, torch.Tensor))

        return Example(_title(sample), fn, tuple(flat[i] for i in places), lambda: made([_doubled(v) for v in flat]))

    return made(flat)


def _title(sample: Any) -> str:
    def show(v: Any) -> Any:
        return f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" if isinstance(v, torch.Tensor) else v

    shown = pytree.tree_map(show, (sample.input, *sample.args))
    return ", ".join([*map(str, shown), *(f"{k}={show(v)}" for k, v in sample.kwargs.items())])


_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in _WIDER:
        wide = value.detach().to(_WIDER[value.dtype])
        wide = wide if wide.stride() == value.stride() else _restrided(wide, value)
        return wide.requires_grad_(value.requires_grad)
    return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def _restrided(wide: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Gives ``wide`` the strides of ``like``, because some operators (as_strided) read memory."""
    if like.numel() == 0 or like.layout != torch.strided:
        return wide
    storage = torch.as_strided(like.detach(), (like.untyped_storage().nbytes() // like.element_size(),), (1,), 0)
    return torch.as_strided(storage.to(wide.dtype), like.shape, like.stride(), like.storage_offset())


@contextmanager
def _seeded(seed: int, device: str) -> Iterator[None]:
    """A context that seeds PyTorch's, NumPy's and Python's generators, and restores them afterwards."""
    states, kind = (random.getstate(), numpy.random.get_state()), torch.device(device).type
    with torch.random.fork_rng(devices=() if kind == "cpu" else (0,), device_type=kind):
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            numpy.random.set_state(states[1])
