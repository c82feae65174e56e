"""Which of PyTorch's kernels loop targets call, and where those of a device differ from the operator set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from keel.spec.dtype_groups import BOOLS, COMPLEX, INTS
from keel.spec.rules import Args


@dataclass(frozen=True)
class Images:
    """Which arguments and results of a kernel are images, of which dtypes, and which arguments are weights."""

    arguments: tuple[int, ...]
    results: tuple[int, ...]
    weights: tuple[int, ...] = ()
    dtypes: frozenset[torch.dtype] = frozenset({torch.float32, torch.bfloat16, torch.float16})


@dataclass(frozen=True, kw_only=True)
class BiasPass:
    """What a library call does to a bias of channels in a pass of its own.

    Keel's kernels do it instead, since they can fuse it.

    The call adds argument number ``added`` to its first result along dimension 1, if it is given one.  Or result number
    ``summed`` is the sum of its first argument over all dimensions but 1; the call leaves it out if that entry of
    argument number ``mask``, a list of flags, is False.
    """

    added: int | None = None
    summed: int | None = None
    mask: int | None = None


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A form of a kernel whose weight is packed once, and that applies other operators to its result on the way out."""

    kind: Literal["convolution", "linear"]
    """Which functions pack the weight and run the form."""
    weight: int
    """The number of the argument that is packed."""
    bias: int | None
    """The number of the argument that is added to each channel of the result; None if it has none."""
    worth: Callable[[Args], bool]
    """True if the form exists for a call, and is faster."""
    image: int = 0
    """The number of the argument that the weight is applied to."""
    channels: int = 0
    """The dimension of the weight that is the channels of the result."""
    then: Mapping[str, str] = field(default_factory=dict)
    """By overload, the library's name for an operator of one tensor that may be applied to the result."""


@dataclass(frozen=True)
class Library:
    """PyTorch's kernels of an operator, for a loop target to call instead of loops or a decomposition.

    Contractions, convolutions, sorting, factorizations and random numbers are better there. So are scatters, whose
    collisions these kernels settle in the same way every time, and operators whose result is sized by data.
    """

    overloads: tuple[str, ...] = ()
    """The overloads that are taken, as declarations name them; all of the operator's if empty."""
    device: str | None = None
    """The type of the devices that have these kernels; None for all."""
    before_loops: bool = True
    """They are taken where there are loops as well."""
    channels_last: Images | None = None
    """What they work on channels-last; they convert it at each call if it lies row-major."""
    bias: BiasPass | None = None
    """What they do in a pass of its own."""
    packed: Packed | None = None
    """The form that is used where the weight lasts from call to call."""
    strided_channels: int = 0
    """With fewer channels than this, the gradient of a weight of one pixel writes beyond its memory where there is a
    stride and input or weight is channels-last (https://github.com/uxlfoundation/oneDNN/issues/6035).
    """


EVERY_DEVICE = (Library(),)
ALIGNED_ROWS: Mapping[str, int] = {"cuda": 16}
"""By device type, the bytes of which the rows of matrices should be a multiple, and the sums along them: without that,
cuBLAS cannot use its fast kernels for 16-bit floats."""
Refuses = Callable[[Args, torch.dtype | None], str | None]
"""Why a kernel is not for a call, by its arguments and the dtype of its first tensor result; None if it is."""


@dataclass(frozen=True)
class CudaKernel:
    """What of PyTorch's CUDA kernel is not as the operator set has it.

    Read from PyTorch's sources (``aten/src/ATen/native/cuda``), and seen when the conformance suite ran on a GPU.
    """

    refuses: Refuses | None = None
    """Which calls it cannot run, or runs differently."""
    narrow_sums: bool = False
    """It keeps partial sums of 16-bit floats in 16 bits."""
    weighs_padding: bool = False
    """It multiplies the rows that a bag leaves out, as zeros, by their weights."""


AS_SPECIFIED = CudaKernel()
NARROW_SUMS = CudaKernel(narrow_sums=True)


def lacks(*dtypes: torch.dtype) -> Refuses:
    """Refuses results of some dtypes."""
    return lambda args, dtype: f"PyTorch's CUDA kernel has no {dtype}." if dtype in dtypes else None


def differs(how: str) -> Refuses:
    """Refuses every call, since the kernel works in another way: ``how`` is a verb and what follows it."""
    return lambda args, dtype: f"PyTorch's CUDA kernel {how}."


NO_INTEGERS = CudaKernel(refuses=lacks(*BOOLS, *INTS))
REDUCES_REALS = CudaKernel(refuses=lacks(*BOOLS, *COMPLEX))
