"""Preconditions that several operators share: the sentence, and whether it holds for arguments by parameter name."""

from __future__ import annotations

import torch

from keel.spec.op import Requires
from keel.spec.rules import Args, Out, sizes
from keel.types import Dim, TensorType, leaves


def _types(args: Args, names: tuple[str, ...]) -> list[TensorType]:
    return [v for n in names for v in leaves(args.get(n)) if isinstance(v, TensorType)]


def broadcasts(*names: str) -> Requires:
    """Sizes known at run time only are taken to fit."""

    def holds(args: Args) -> bool:
        known: dict[int, Dim] = {}
        for t in _types(args, names):
            for i, n in enumerate(reversed(t.shape)):
                if isinstance(n, int) and n != 1 and known.setdefault(i, n) != n:
                    return False
        return True

    return Requires("broadcasts", "The shapes broadcast: aligned at the last dimension, sizes are equal or 1.", holds)


def no_complex(*names: str) -> Requires:
    """Complex numbers have no order."""

    def holds(args: Args) -> bool:
        return not any(t.dtype.is_complex for t in _types(args, names)) and not any(
            isinstance(args.get(n), complex) for n in names
        )

    return Requires("no-complex", "No argument is complex.", holds)


def only(*names: str, dtypes: tuple[torch.dtype, ...], which: str) -> Requires:
    """``which`` says in words what ``dtypes`` are, as in "integers or bools"."""
    return Requires(
        "dtypes", f"The tensors are {which}.", lambda args: all(t.dtype in dtypes for t in _types(args, names))
    )


def gradient_of(view: Out, *, repeated: bool = False) -> Requires:
    """For the gradient of a view, by the view's own rule. PyTorch's kernels broadcast one of other sizes; no view has
    such a gradient, but with ``repeated`` it may have one element in a dimension that the view leaves alone, as
    ``istft`` gives it.
    """

    def holds(args: Args) -> bool:
        grad = args["grad_output"] if "grad_output" in args else args["grad_in"]
        input_type = TensorType.dense(grad.dtype, sizes(args["input_sizes"]))
        want = view.shape.of({"dimension": args.get("dim"), **args, "self": input_type})
        alone = [d for d in range(input_type.rank) if d != args["dim"] % max(input_type.rank, 1)] if repeated else []
        return len(want) == grad.rank and all(
            a == b or not isinstance(a, int) or not isinstance(b, int) or (b == 1 and d in alone)
            for d, (a, b) in enumerate(zip(want, grad.shape, strict=True))
        )

    return Requires(
        "gradient-sizes",
        "The gradient has the sizes of what it is the gradient of"
        f"{', or one element where that leaves a dimension alone' if repeated else ''}.",
        holds,
    )
