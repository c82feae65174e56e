"""The launch program of a loop-level part, as data: what one call does, in order.

It is made of a schedule (``launch_builder``), always checked (``launch_verify``), and then printed: as a Python
function (``launch_printer``) today; it holds nothing that only Python could do.  Tensors are numbers into
``LaunchProgram.tensors``, symbols are names, and sizes are expressions over symbols that earlier steps bind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from keel.loops.ir import Kernel
from keel.schedule.tensor_graph import CheckSite
from keel.types import Dim, SymType, TensorType

# -- where a symbol's value is read ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputNumber:
    """The program's input at ``position``, which is a number."""

    position: int


@dataclass(frozen=True, slots=True)
class SizeOf:
    """The size of ``tensor`` in ``dim``."""

    tensor: int
    dim: int


@dataclass(frozen=True, slots=True)
class StrideOf:
    """The stride of ``tensor`` in ``dim``, in elements."""

    tensor: int
    dim: int


Source = InputNumber | SizeOf | StrideOf

# -- steps ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BindSymbol:
    """``symbol = (source - rest) // factor``: the source is a size that was traced as ``factor * symbol + rest``."""

    symbol: str
    source: Source
    factor: Dim = 1
    rest: Dim = 0


@dataclass(frozen=True, slots=True)
class Compute:
    """``symbol = value``: an integer that the host computes from symbols bound before, ``value`` a sympy expression."""

    symbol: str
    value: Any


@dataclass(frozen=True, slots=True)
class Own:
    """Makes the donated input ``tensor`` one that the program may write to: a copy, if somebody may read it later."""

    tensor: int


@dataclass(frozen=True, slots=True)
class TakeArena:
    """Borrows an arena for this call: all of its tensors can be used from here on."""


@dataclass(frozen=True, slots=True)
class GiveArena:
    """Gives the arena back, for another call to use: none of its tensors can be used any more."""


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory of its own for ``tensor``, with nothing in it yet."""

    tensor: int


@dataclass(frozen=True, slots=True)
class Reuse:
    """Has ``tensor`` take over ``dead``, which was allocated here, is of the same type and is not used any more. There
    are other values in it.
    """

    tensor: int
    dead: int


@dataclass(frozen=True, slots=True)
class MakeView:
    """``tensor`` as a view of ``base`` that begins ``offset`` elements after it."""

    tensor: int
    base: int
    offset: Dim


@dataclass(frozen=True, slots=True)
class LaunchKernel:
    """Runs ``kernel`` on ``tensors``, its buffers in order, and the values of ``symbols``, its symbols in order.
    Profilers show the ``label``.
    """

    kernel: Kernel
    tensors: tuple[int, ...]
    symbols: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class CallLibrary:
    """Calls ``function``.

    ``args`` and ``kwargs`` hold a ``Slot`` for each tensor, a ``SymType`` for each symbolic number, and constants, in
    lists too. ``results`` are the tensors that it returns, -1 for each value that is not a tensor. If ``out`` is given,
    the function fills that tensor instead, by a keyword of that name, and its return value is ignored. ``view_of`` is
    the tensor whose memory the results alias; None if they are fresh. Profilers show the ``label``.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[int, ...] = ()
    out: int | None = None
    view_of: int | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class LayOut:
    """Gives ``tensor``, which a library returned, the strides of its type: as it is if it has them, else as a copy.
    Raises KeelError[wrong-result] if it does not have the shape of its type.

    A kernel overwrites it if ``others`` has the arguments and the other results of the library call: it becomes a copy
    if the library, against its promise, returned one of them.
    """

    tensor: int
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckIndices:
    """Raises KeelError[bad-index] if a kernel recorded an index out of range in one of ``tensors``, which are check
    memory on the host.
    """

    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SettleChecks:
    """The same for check memory of a device, before a call's kernels, or ``after`` them."""

    after: bool


@dataclass(frozen=True, slots=True)
class Assert:
    """Raises RuntimeError with ``message`` unless ``condition``, a sympy relation or number over symbols, holds."""

    condition: Any
    message: str


@dataclass(frozen=True, slots=True)
class Free:
    """Lets go of ``tensor``, an input or one that was made here.  Its memory is free once the caller does not hold it
    and no other tensor lies in it.
    """

    tensor: int


@dataclass(frozen=True, slots=True)
class Return:
    """Ends the call with these results: a tensor, a number, or None each."""

    results: tuple[int | SymType | None, ...]


Step = (
    BindSymbol
    | Compute
    | Own
    | TakeArena
    | GiveArena
    | Allocate
    | Reuse
    | MakeView
    | LaunchKernel
    | CallLibrary
    | LayOut
    | CheckIndices
    | SettleChecks
    | Assert
    | Free
    | Return
)

# -- what outlives a call -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArenaTensor:
    """A tensor in the arena that is in use from the step number ``first`` to ``last``, both inclusive."""

    tensor: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArenaView:
    """A view of the kept tensor ``base``, ``offset`` elements after it, which is made with the arena."""

    tensor: int
    base: int
    offset: Dim


@dataclass(frozen=True)
class ArenaPlan:
    """One block of memory for the tensors that nobody sees after a call.  ``key`` are the symbols that decide how large
    it is and where its tensors lie: an arena serves each call with the same values.
    """

    key: tuple[str, ...] = ()
    tensors: tuple[ArenaTensor, ...] = ()
    views: tuple[ArenaView, ...] = ()


@dataclass(frozen=True)
class CheckMemory:
    """Where kernels record indices out of range: an int64 for each of ``sites``, of which each tensor has a slice.

    ``at_once`` says that the memory is on the host and part of the arena, and is looked at after each kernel; and
    ``pinned`` that it is on the host, and kernels of another device write to it.
    """

    sites: tuple[CheckSite, ...] = ()
    places: Mapping[int, slice] = field(default_factory=dict)
    at_once: bool = False
    pinned: bool = False


@dataclass(frozen=True)
class LaunchProgram:
    """What one call does: ``steps`` in order, on ``inputs`` (a tensor each, or a number). It writes to no inputs but
    ``overwritten`` ones, which it returns, and those of a step ``Own``.
    """

    tensors: tuple[TensorType, ...]
    inputs: tuple[int | SymType, ...]
    steps: tuple[Step, ...]
    arena: ArenaPlan = ArenaPlan()
    checks: CheckMemory = CheckMemory()
    overwritten: frozenset[int] = frozenset()

    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in order of first use."""
        return tuple(dict.fromkeys(s.kernel for s in self.steps if isinstance(s, LaunchKernel)))
