"""A library call whose weight is packed once, with what is computed from parameters folded into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import add, mul, sub, truediv
from typing import Any

import torch

from keel.plugin import PackedForm
from keel.schedule.tensor_graph import Slot
from keel.torch_adapter import LastingValue, map_leaves

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "aten.add.Tensor": add,
    "aten.sub.Tensor": sub,
    "aten.mul.Tensor": mul,
    "aten.div.Tensor": truediv,
}
"""What can be folded into a weight and a bias, if the second operand is a number for each channel."""


@dataclass(frozen=True)
class Recipe:
    """Calls that compute values from tensors.

    A ``Slot`` among arguments is the number of a value: the tensors come first, then the results of ``calls``.
    """

    calls: tuple[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], ...]
    outputs: tuple[Slot | float | None, ...]

    def run(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        values: list[Any] = [*tensors]
        for function, args, kwargs in self.calls:
            values.append(function(*_filled(args, values), **_filled(kwargs, values)))
        return [_filled(w, values) for w in self.outputs]


def _filled(tree: Any, values: Sequence[Any]) -> Any:
    return map_leaves(lambda leaf: values[leaf.number] if isinstance(leaf, Slot) else leaf, tree)


@dataclass(frozen=True)
class _Packed:
    weight: torch.Tensor
    bias: torch.Tensor | None
    after: tuple[tuple[Callable[[Any, Any], Any], Any], ...] = ()
    """What could not be folded, because a number is not finite."""


@dataclass(frozen=True, eq=False)
class PackedCall:
    """Runs ``form`` on an image, a tensor that is added if ``adds``, and the parameters, in this order.

    ``recipe`` computes from the parameters: the weight, the bias or None, and the second operand of each name in
    ``folded``. ``then`` is an operator on the result, and the form's name for it; nothing is added as well.
    """

    form: PackedForm
    rest: tuple[Any, ...]
    recipe: Recipe
    folded: tuple[str, ...]
    adds: bool
    then: tuple[Callable[..., Any], str] | None
    memory: list[LastingValue[_Packed]] = field(default_factory=list)

    def __call__(self, image: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        other, parameters = (more[0], more[1:]) if self.adds else (None, more)
        if not self.memory:
            # The first image decides about the layout of the weight, in which images of other sizes are right, too.
            self.memory.append(LastingValue(partial(self._packed, tuple(image.shape))))
        packed = self.memory[0].of(*parameters)
        if not packed.after:
            name = self.then and self.then[1]
            return self.form.run(image, packed.weight, packed.bias, self.rest, other, name)
        result = self.form.run(image, packed.weight, packed.bias, self.rest, None, None)
        for function, operand in packed.after:
            result = function(result, operand)
        result = result if other is None else result + other
        return self.then[0](result) if self.then else result

    def _packed(self, image: tuple[int, ...], *parameters: torch.Tensor) -> _Packed:
        weight, bias, *operands = self.recipe.run(parameters)
        folded = _folded(weight, bias, self.form.facts.channels, tuple(zip(self.folded, operands, strict=True)))
        if folded is not None:
            weight, bias = folded
            return _Packed(self.form.pack(weight, image, self.rest), bias)
        after = tuple((ARITHMETIC[n], o) for n, o in zip(self.folded, operands, strict=True))
        return _Packed(self.form.pack(weight, image, self.rest), bias, after)


def _folded(
    weight: torch.Tensor, bias: torch.Tensor | None, dim: int, operations: Sequence[tuple[str, Any]]
) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """Returns the weight, with channels along ``dim``, and the bias whose results are those of ``operations`` on the
    result.

    They are computed in float64 and rounded once. Returns None if a factor, a weight or a bias is not finite.
    """
    if not operations:
        return weight, bias
    channels = weight.shape[dim]
    scale = torch.ones(channels, dtype=torch.float64)
    shift = torch.zeros(channels, dtype=torch.float64) if bias is None else bias.double()
    for name, operand in operations:
        value = operand.double().reshape(-1) if isinstance(operand, torch.Tensor) else operand
        if name in ("aten.mul.Tensor", "aten.div.Tensor"):
            scale = ARITHMETIC[name](scale, value)
        shift = ARITHMETIC[name](shift, value)
    scaled = (weight * scale.reshape(-1, *[1] * (weight.dim() - 1 - dim))).to(weight.dtype)
    shift = shift.to(weight.dtype)
    return (scaled, shift) if all(bool(t.isfinite().all()) for t in (scale, scaled, shift)) else None
