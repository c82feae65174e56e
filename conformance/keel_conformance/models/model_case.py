"""A model with inputs to try it on: what every measurement and every check of a whole model takes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

SCALES = ("line", "tiny")
STEP = 2.0**-12
"""Of statistics that are set: far above the rounding of a mean, and far below a deviation."""
DEVIATION = 0.1
"""The standard deviation of parameters that would be zeros."""


@dataclass(frozen=True)
class ModelCase:
    """A model, its inputs, and how to train it a step.

    ``model(*args, **kwargs)`` is inference. ``model(*args, **kwargs, **targets)`` is a training pass, and
    ``loss(out)`` the scalar to call ``backward`` on.
    """

    name: str
    model: nn.Module
    args: tuple[Tensor, ...]
    kwargs: Mapping[str, Any]
    targets: Mapping[str, Tensor]
    loss: Callable[[Any], Tensor]
    widen: Callable[[nn.Module], None] = lambda model: None
    """Makes a float64 twin compute by other calls where its own have no float64."""

    def on(self, device: str) -> ModelCase:
        """The same model, moved to ``device``, with its inputs there."""

        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        return self._with(self.model.to(device), moved)

    def channels_last(self) -> ModelCase:
        """The same model with its images and their weights moved to ``torch.channels_last``."""

        def moved(value: Any) -> Any:
            is_image = isinstance(value, Tensor) and value.ndim == 4
            return value.contiguous(memory_format=torch.channels_last) if is_image else value

        # Module.to(memory_format=...) has no type for its keyword alone.
        model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self._with(model, moved)

    def twin(self, dtype: torch.dtype | None = None) -> ModelCase:
        """A deep copy that shares no storage; with ``dtype``, its floating parameters, buffers and inputs cast."""
        model = copy.deepcopy(self.model)
        if dtype is not None:
            self.widen(model.to(dtype))
        return self._with(model, partial(_copied, dtype=dtype))

    def _with(self, model: nn.Module, of: Callable[[Any], Any]) -> ModelCase:
        return replace(
            self,
            model=model,
            args=tuple(map(of, self.args)),
            kwargs={k: of(v) for k, v in self.kwargs.items()},
            targets={k: of(v) for k, v in self.targets.items()},
        )


def _copied(value: Any, dtype: torch.dtype | None) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.clone() if dtype is None or not value.is_floating_point() else value.to(dtype, copy=True)


class InDouble(TorchFunctionMode):
    """While this mode is active, a call that asks PyTorch for float32, or for no dtype, gets float64.

    Models cast to float32 on purpose (normalization, rotary tables, ``logits.float()``). In a float64 reference such a
    cast would throw away the digits the reference is for.
    """

    def __enter__(self) -> InDouble:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self._default)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        return func(*map(_doubled, args), **{k: _doubled(v) for k, v in (kwargs or {}).items()})


def _doubled(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def fill_zeros(model: nn.Module, seed: int) -> None:
    """Gives parameters that are all zeros small random values.

    What is multiplied by zeros shows in no result. The last norms of residual branches begin as zeros, and some
    classifiers.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if not p.any():
                p.normal_(0.0, DEVIATION, generator=generator)


def calibrate(model: nn.Module, *args: Tensor) -> None:
    """Sets batch norms' running statistics from one batch.

    Fresh statistics under random weights let the activations of a deep network grow without bound in ``eval`` mode,
    and a model whose outputs are 1e9 measures nothing. They come of a float64 run and are cut to multiples of ``STEP``,
    so that they are the same numbers however many threads sum: a mean that is nothing but rounding would be another.
    """
    wide = copy.deepcopy(model).double()
    pairs = [
        (m, w)
        for m, w in zip(model.modules(), wide.modules(), strict=True)
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    ]
    for _, w in pairs:
        assert isinstance(w, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
        w.momentum = 1.0
    wide.train()
    with torch.no_grad(), InDouble():
        wide(*(x.double() if x.is_floating_point() else x for x in args))
        for m, w in pairs:
            mean, var = w.get_buffer("running_mean"), w.get_buffer("running_var")
            if m.running_mean is not None and m.running_var is not None:
                m.running_mean.copy_((mean / STEP).round() * STEP)
                m.running_var.copy_((var / STEP).round().clamp(min=1) * STEP)
