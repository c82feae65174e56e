"""Casts results of PyTorch's kernels whose types differ from those of its fake kernels, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from keel.errors import KeelError, KeelWarning
from keel.runtime.contract_checks import PartContract, Run, bind, mismatch, strides_of
from keel.types import TensorType, Type


class CastResults:
    """A part that runs PyTorch's kernels. A graph is compiled for the types that fake kernels promise. The fake kernel
    of a device or of a custom operator may promise another dtype or other strides than the real kernel returns. That is
    not a defect of the backend, so results are cast to the promised type. Results are cast in all calls if one deviates
    in the first call.
    """

    def __init__(self, run: Run, made: PartContract) -> None:
        self._run, self._made, self._deviates = run, made, False

    def __call__(self, *args: Any) -> Sequence[Any]:
        results = self._run(*args)
        return self._cast(args, results) if self._deviates else results

    def first(self, *args: Any) -> Sequence[Any]:
        """The first call: checks the types of the results, and warns if some are cast.

        Raises KeelError[wrong-result] for results that a cast cannot correct, for example those with other sizes.
        """
        results = self._run(*args)
        if not isinstance(results, tuple | list) or len(results) != len(self._made.outputs):
            return results
        cast = self._cast(args, results)
        if left := self._deviating(args, cast):
            raise self._error(left, "Compiled code cannot use such a result. Correct the fake kernel of the operator.")
        if deviating := self._deviating(args, results):
            self._deviates = True
            do = "The results are cast to the promised types. strict=True makes this an error."
            warnings.warn(str(self._error(deviating, do)), KeelWarning, stacklevel=3)
        return cast

    def _cast(self, args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        known = bind(self._made.inputs, args)
        return [cast(want, got, known) for want, got in zip(self._made.outputs, results, strict=True)]

    def _deviating(self, args: Sequence[Any], results: Sequence[Any]) -> list[tuple[str, str | None, str]]:
        """The results without the promised type: the name, the user's line that made it, and the difference."""
        made, known = self._made, bind(self._made.inputs, args)
        return [
            (name, line, why.sentence)
            for name, line, want, got in zip(made.names, made.lines, made.outputs, results, strict=True)
            if (why := mismatch(want, got, known))
        ]

    def _error(self, deviating: Sequence[tuple[str, str | None, str]], do: str) -> KeelError:
        line = next((line for _, line, _ in deviating if line is not None), None)
        return KeelError(
            "wrong-result",
            f"PyTorch's kernels return other types in part {self._made.part} than its fake kernels promise.",
            {f"%{name}": why for name, _, why in deviating},
            line,
            do,
        )


def lay_out(run: Run, made: PartContract) -> Run:
    """Wraps a part whose results may have any strides: those that are not laid out as the graph promises are copied."""

    def laid_out(*args: Any) -> Sequence[Any]:
        results = run(*args)
        if not isinstance(results, tuple | list) or len(results) != len(made.outputs):
            return results
        known = bind(made.inputs, args)
        return [
            cast(want, got, known) if isinstance(got, torch.Tensor) and _has_dtype(want, got) else got
            for want, got in zip(made.outputs, results, strict=True)
        ]

    return laid_out


def _has_dtype(want: Type, got: torch.Tensor) -> bool:
    return isinstance(want, TensorType) and want.dtype == got.dtype


def cast(want: Type, got: Any, known: Mapping[str, int]) -> Any:
    """Returns ``got``, or a copy with the dtype and the strides of ``want`` if these differ."""
    if mismatch(want, got, known) is None or not isinstance(want, TensorType) or not isinstance(got, torch.Tensor):
        return got
    mended = got.to(want.dtype)
    steps = strides_of(want, known)
    if mended.dim() == len(steps) and None not in steps and list(mended.stride()) != steps:
        mended = with_strides(mended, [0 if step is None else step for step in steps])
    return mended if mismatch(want, mended, known) is None else got


def with_strides(x: torch.Tensor, steps: Sequence[int]) -> torch.Tensor:
    """A copy with these strides. Along a dimension with stride 0 all elements are the first one."""
    shape = [1 if step == 0 and n > 1 else n for n, step in zip(x.shape, steps, strict=True)]
    copy = x.new_empty_strided(shape, list(steps)).copy_(x[tuple(slice(0, n) for n in shape)])
    return copy.expand(x.shape)
