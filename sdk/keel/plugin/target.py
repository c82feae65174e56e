"""The loop level: a target is tables and two functions, which ``keel.loop_backend`` turns into a Backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch

from keel.cost import Cost
from keel.loops.ir import Kernel, StoreMode
from keel.loops.monoids import MONOIDS
from keel.loops.scalar_ops import SCALARS, ByKind, ScalarText
from keel.plugin.api import (
    ANSWER,
    API,
    BUILDS,
    COMPILES_KERNELS,
    FINGERPRINT,
    LOADS_KERNELS,
    MAKES_MEMORY,
    PROBE,
    WARM_UP,
    checked_api,
)
from keel.plugin.device_memory import DeviceMemory
from keel.plugin.machine_code import CodeObject, CompileAndLoad
from keel.plugin.numeric_facts import IEEE, Arithmetic
from keel.plugin.options import Option, checked_options
from keel.plugin.support import Refuses
from keel.registration import (
    bad,
    checked_call,
    checked_count,
    checked_device,
    checked_dtype,
    checked_flag,
    checked_keys,
    checked_name,
    checked_operators,
    checked_type,
    dtypes,
    table,
    texts,
)
from keel.spec.pytorch_kernels import BiasPass, Packed
from keel.types import DTYPE_NAMES


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the kernels that a loop target takes."""

    max_buffers: int = 64  # buffers per kernel
    max_rank: int = 8  # axes per loop nest
    atomics: frozenset[str] = frozenset({"add"})  # store modes in addition to write
    atomic_dtypes: frozenset[torch.dtype] | None = None  # the dtypes of these; None for all dtypes of the target
    vector: int = 1  # useful number of lanes in the innermost axis
    parallel: int = 1  # independent iterations that fill the device
    columns: int = 1  # neighbors in memory, each with its own reduction, that count as one such iteration
    pieces: int = 1  # the most loops to split one loop into, so that each compares fewer positions

    def __post_init__(self) -> None:
        for name in ("max_buffers", "max_rank", "vector", "parallel", "columns", "pieces"):
            checked_count("A Limits", name, getattr(self, name))
        if self.atomics:
            object.__setattr__(self, "atomics", frozenset(texts("A Limits", "atomics", self.atomics, "add")))
            checked_keys("A Limits", "atomics", self.atomics, get_args(StoreMode), "mode of a store")
        if self.atomic_dtypes:
            object.__setattr__(self, "atomic_dtypes", dtypes("A Limits", "atomic_dtypes", self.atomic_dtypes))

    def lacks(self, mode: str, dtype: torch.dtype) -> str:
        """What the target lacks for stores of this mode and dtype; '' if nothing."""
        if mode == "write":
            return ""
        if mode not in self.atomics:
            return f"atomic {mode}"
        known = self.atomic_dtypes is None or dtype in self.atomic_dtypes
        return "" if known else f"atomic {mode} of {DTYPE_NAMES.get(dtype, str(dtype))}"


@dataclass(frozen=True, kw_only=True)
class LayoutPreference:
    """The layout in which a library call is fastest: ``torch.channels_last`` for images of rank 4, ``channels_last_3d``
    for rank 5. ``arguments`` are the positions of its image arguments, and ``results`` the numbers of its image
    results. If the arguments are channels-last, so are the results. In other layouts it converts images internally,
    which costs ``passes`` additional passes over their bytes. Arguments in ``converted``
    (weights) are channels-last if the images are; converting them saves nothing. The preference applies to images of
    ``dtypes``.
    """

    arguments: tuple[int, ...]
    results: tuple[int, ...]
    passes: float
    converted: tuple[int, ...] = ()
    dtypes: frozenset[torch.dtype] = frozenset({torch.float32, torch.bfloat16, torch.float16})

    def is_about(self, args: Sequence[Any]) -> bool:
        """True if all arguments that it names are among these positional arguments, and not keyword arguments."""
        return max((*self.arguments, *self.converted), default=-1) < len(args)


@dataclass(frozen=True, kw_only=True)
class PackedForm:
    """A form of a library call for weights that last from call to call: they are packed once.

    ``facts`` are the positions of its arguments, and what it may apply to its result. ``takes`` says which dtypes it
    has, and ``takes_for_speed`` those for which it gains little for the memory that it holds: they are packed if
    ``CompileContext.spends_memory``. ``pack`` takes the weight, the sizes of the argument that it is applied to, and
    the arguments behind these and the bias. ``run`` takes the argument, the packed weight, a bias or None, and the
    arguments behind these. Then come a tensor that is added to the result and the library's name of an operator to
    apply; at least one of them is None.
    """

    facts: Packed
    takes: Callable[[torch.dtype], bool]
    takes_for_speed: Callable[[torch.dtype], bool] | None = None
    pack: Callable[..., Any]
    run: Callable[..., torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Extern:
    """An operator that a loop target runs by a library call: contraction, convolution, sort …

    ``run`` takes the call's arguments (tensors for tensors) and returns fresh output tensors, which kernels may
    overwrite and which it must not keep; ``out``, if given, takes the same and ``out=`` a tensor to fill (which may
    be any dense strided view). ``refuse`` restricts which calls are taken. ``view`` says that the one result is not
    a fresh tensor but aliases the first tensor argument. ``layout`` is the layout in which it is fastest, if it has
    one; ``bias`` what it does to a bias in a pass of its own. ``aligned_rows`` is the number of bytes of which the
    rows of its matrices should be a multiple, and the sums along them, so that it can use its fastest kernels. Its
    last two tensor arguments are then the matrices of a product, and those before are added to it; each may have a
    gap behind its rows. ``packed`` is its form for weights that last.
    """

    run: Callable[..., Any]
    out: Callable[..., Any] | None = None
    refuse: Refuses | None = None
    view: bool = False
    layout: LayoutPreference | None = None
    bias: BiasPass | None = None
    aligned_rows: int = 1
    packed: PackedForm | None = None

    def __post_init__(self) -> None:
        checked_call("An Extern", "run", self.run, "it takes the call's arguments, and returns fresh tensors")
        checked_call("An Extern", "out", self.out, "it takes the same and out=, a tensor to fill", optional=True)
        checked_call("An Extern", "refuse", self.refuse, ANSWER, optional=True, takes=1)
        checked_flag("An Extern", "view", self.view)
        checked_type("An Extern", "layout", self.layout, (LayoutPreference, type(None)), "a LayoutPreference, or none")
        checked_count("An Extern", "aligned_rows", self.aligned_rows)
        checked_type("An Extern", "packed", self.packed, (PackedForm, type(None)), "a PackedForm, or none")
        checked_type("An Extern", "bias", self.bias, (BiasPass, type(None)), "a BiasPass, or none")
        if (b := self.bias) and ((b.added is None) == (b.summed is None) or (b.summed is None) != (b.mask is None)):
            bad("The BiasPass of an Extern names both or neither of added and summed, or no mask.", "Name one.")


@dataclass(frozen=True)
class Source:
    """A rendered kernel, ready to be built."""

    kernel: Kernel
    text: str


Launcher = Callable[..., None]
"""Called with the kernel's buffers as tensors, in order, then its symbols as ints; writes the out buffers."""


@dataclass(frozen=True, kw_only=True)
class LoopTarget:
    """A loop-level backend: three tables and two functions.

    ``scalars`` gives the text of each scalar op, operands as ``{0} {1} …`` and the result's dtype name as ``{dtype}``;
    it has to be right for every dtype that the op takes (see ``keel.loops.SCALARS[op]``), or is a ``ByKind``. An op
    that is not in the table is expanded by Keel into those that are. ``reductions`` gives (identity, combination) per
    monoid, where the combination is a text over ``{0} {1}``; a monoid that is not in it is rendered from
    ``keel.loops.combination``, its steps in ops that the table has. Names of kernels, buffers, axes and symbols are any
    identifiers: ``render`` keeps them apart from the words of its language. The tables are what the target supports:
    nothing else is declared. ``render`` is pure. ``build`` gets all kernels of a graph at once and returns one launcher
    each. Unless ``checks``, Keel writes out each Check that a kernel has. With ``arena``, intermediate tensors lie in a
    block of memory that a part keeps from call to call, which is fastest where the system has to map memory. Without
    it, each is allocated and freed, which takes the least memory where PyTorch caches what is freed, as on GPUs. If its
    kernels can write to pinned memory of the host, wrong indices are recorded there, and no call waits to read them.
    ``warm_up``, ``options``, ``arithmetic`` and ``fingerprint`` are those of a ``Backend``.

    ``compile`` and ``load`` are for packages: the machine code of kernels as data. ``compile`` gets the sources and the
    name of a machine, or None for this one, and returns CodeObject values. It needs no device, and raises KeelError
    with the names that it knows for any other name. ``load`` gets all of these objects and the same sources, and
    returns one launcher for each source. It needs no compiler, and raises KeelError if this machine lacks what an
    object needs. A target with both may leave out ``build``, which is then one after the other.

    ``memory`` is for a device that PyTorch does not know: a function that returns its DeviceMemory. The device of the
    target is then the one that its parts get tensors on and return tensors on, such as ``cpu``. Keel copies these, and
    keeps the constants of a model in the device's memory. Launchers get tensors to which ``memory_of`` applies. Such a
    target has no externs.

    ``render``, ``build``, ``compile``, ``load`` and ``memory`` get a ``CompileContext`` if they have a parameter named
    ``ctx``.
    """

    name: str
    device: str
    dtypes: Mapping[torch.dtype, str]
    scalars: Mapping[str, ScalarText]
    reductions: Mapping[str, tuple[str, str]]
    render: Callable[..., str]  # of a Kernel
    build: Callable[..., Sequence[Launcher]] = None  # type: ignore[assignment]  # of a sequence of Source
    compile: Callable[..., Sequence[CodeObject]] | None = None  # of sources and the name of a machine, since API 2
    load: Callable[..., Sequence[Launcher]] | None = None  # of code objects and their sources, since API 2
    checks: bool = False  # True if ``render`` takes Check statements
    concurrent: bool = False  # True if ``build`` may run on several threads at once
    arena: bool = True  # False if intermediate tensors are allocated one by one
    writes_pinned: bool = False  # its kernels can write to pinned memory of the host, since API 2
    memory: Callable[..., DeviceMemory] | None = None  # memory of its own, since API 2
    externs: Mapping[str, Extern] = field(default_factory=dict)  # by overload name
    limits: Limits = Limits()
    suffix: str = "txt"  # of files with its sources
    probe: Callable[[], str | None] = lambda: None
    cost: Cost | None = None
    warm_up: Callable[[], Any] | None = None
    arithmetic: Arithmetic = IEEE  # numeric facts about it, since API 2
    options: tuple[Option, ...] = ()  # what users may set, since API 2
    fingerprint: Callable[[], str] | None = None  # identifies its code, its compiler and the machine, since API 2
    api: int = API

    def __post_init__(self) -> None:
        checked_name("A LoopTarget", self.name)
        what = f"The LoopTarget {self.name!r}"
        checked_device(what, self.device, any_device=False)
        for dtype, text in table(what, "dtypes", self.dtypes, "torch.dtype", empty=False).items():
            checked_dtype(what, "dtypes", dtype)
            checked_type(what, f"dtypes[{dtype}]", text, str, "the name of the dtype in the target's language")
        scalars = table(what, "scalars", self.scalars, "scalar op")
        checked_keys(what, "scalars", scalars, SCALARS, "scalar op")
        for op, text in scalars.items():
            if isinstance(text, ByKind):
                _checked_kinds(what, op, text)
            elif not callable(text):
                checked_type(what, f"scalars[{op!r}]", text, str, "the text of the op, or a function that returns it")
        folds = table(what, "reductions", self.reductions, "monoid")
        checked_keys(what, "reductions", folds, MONOIDS, "monoid")
        for monoid, pair in folds.items():
            if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(t, str) for t in pair)):
                bad(f"{what} has reductions[{monoid!r}]={pair!r}.", 'Write a pair of texts: ("0", "{0} + {1}").')
        externs = table(what, "externs", self.externs, "overload name")
        checked_operators(what, "externs", externs, packets=False)
        for name, extern in externs.items():
            checked_type(what, f"externs[{name!r}]", extern, Extern, "keel.Extern(run=...)")
        checked_call(what, "memory", self.memory, MAKES_MEMORY, optional=True, takes=0, by_name="ctx")
        if self.memory is not None and externs:
            bad(f"{what} has memory of its own and externs.", "Leave out one: libraries run on PyTorch's memory.")
        if not scalars and not folds and not externs:
            bad(f"{what} has empty tables: it computes nothing.", "Fill at least one of scalars, reductions, externs.")
        checked_call(what, "render", self.render, "it takes a Kernel, and returns its text", takes=1, by_name="ctx")
        self._check_builders(what)
        checked_call(what, "probe", self.probe, PROBE, takes=0)
        checked_call(what, "warm_up", self.warm_up, WARM_UP, optional=True, takes=0)
        checked_call(what, "fingerprint", self.fingerprint, FINGERPRINT, optional=True, takes=0)
        checked_flag(what, "checks", self.checks)
        checked_flag(what, "concurrent", self.concurrent)
        checked_flag(what, "arena", self.arena)
        checked_flag(what, "writes_pinned", self.writes_pinned)
        checked_type(what, "limits", self.limits, Limits, "keel.Limits(...)")
        if not isinstance(self.suffix, str) or not self.suffix.isalnum():
            bad(f"{what} has suffix={self.suffix!r}.", 'Write the ending of a file name, without the dot: suffix="c".')
        checked_type(what, "arithmetic", self.arithmetic, Arithmetic, "keel.plugin.Arithmetic(...)")
        object.__setattr__(self, "options", checked_options(what, self.options))
        checked_type(what, "cost", self.cost, (Cost, type(None)), "a data sheet, keel.Cost(...), or leave it out")
        checked_api(what, self.api)

    def _check_builders(self, what: str) -> None:
        """Checks ``build``, ``compile`` and ``load``, and makes ``build`` of the others where it is left out."""
        checked_call(what, "compile", self.compile, COMPILES_KERNELS, optional=True, takes=2, by_name="ctx")
        checked_call(what, "load", self.load, LOADS_KERNELS, optional=True, takes=2, by_name="ctx")
        if (self.compile is None) != (self.load is None):
            bad(f"{what} has only one of `compile` and `load`.", "Write both, or leave both out.")
        composed = self.build is None or isinstance(self.build, CompileAndLoad)  # a copy may have another compile
        if composed and self.compile is not None and self.load is not None:
            object.__setattr__(self, "build", CompileAndLoad(self.compile, self.load))
        checked_call(what, "build", self.build, BUILDS, takes=1, by_name="ctx")


def _checked_kinds(what: str, op: str, texts: ByKind) -> None:
    """Checks texts for kinds of dtype: ``op`` must take each of them, and there must be at least one."""
    for kind in texts.kinds:
        if kind not in SCALARS[op].kinds:
            bad(
                f"{what} has scalars[{op!r}] with a text for {kind} operands, which {op} does not take.",
                f"It takes {' and '.join(SCALARS[op].kinds)} ones.",
            )
        checked_type(what, f"scalars[{op!r}].{kind}", getattr(texts, kind), str, "the text of the op")
    if not texts.kinds:
        bad(f"{what} has scalars[{op!r}] without a text.", f"Leave {op} out, and Keel expands it into other ops.")
