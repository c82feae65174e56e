"""The declaration of an operator: once, as data, with its meaning in numbered clauses.

A *primitive* is what every program ends in; a *composite* has a decomposition into simpler members and stays whole
where a backend claims it; an *opaque* operator is neither, for the reason it gives. What it computes is what its
overload computes, run eagerly in higher precision; the clauses say what of that every implementation must keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch

from keel.spec.clause import About, Clause, Stated, clauses_of
from keel.spec.numerics import UNSTATED, Numerics
from keel.spec.pytorch_kernels import AS_SPECIFIED, CudaKernel, Library
from keel.spec.rules import Args, DtypeRule, Out, ShapeRule
from keel.spec.unspecified import Unspecified
from keel.torch_adapter import operator_named
from keel.types import Type

Kind = Literal["primitive", "composite", "opaque"]
PROFILES = (
    "core",
    "random",
    "complex",
    "linalg",
    "fft",
    "special",
    "quantized",
    "attention",
    "control",
    "collectives",
    "host",
)
"""What a backend may have or lack as a whole; ``core`` is what every one needs."""
Overload = Callable[..., Any]
UNORDERED = frozenset({"nondeterministic_bitwise"})
"""PyTorch's tag for operators of which two runs may differ in bits.  Here it is on those that add up or multiply, in no
specified order, elements that go to one place, and on what is written out in these."""


@dataclass(frozen=True)
class Sample:
    """Arguments to try an operator on."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


Samples = Callable[[torch.dtype], Iterator[Sample]]
"""Samples of one dtype, special values first. Deterministic."""


@dataclass(frozen=True)
class Requires:
    """A precondition: an ``id`` that is unique among those of its member, by which code speaks of it; the sentence, for
    readers; and whether it ``holds`` for arguments (by parameter name, tensors as types).
    """

    id: str
    sentence: str
    holds: Callable[[Args], bool]


@dataclass(frozen=True)
class Neutral:
    """How a composite that reduces along one dimension leaves out elements of it, whatever the other elements are.

    ``values`` has each operand with that dimension, by parameter name: the dimension, or the parameter that says which
    it is, and the value that the elements have to have. ``fixed`` are dimensions of operands that it reduces along as
    well. ``masks`` has, by the full name of an overload, the parameter of a mask that is added, whose last dimension it
    is: elements that are left out have -inf there. No mask is needed if a flag is set and an operand has as many
    elements in that dimension, of which each sees none that stand behind it: ``causal`` names the flag and the operand.
    """

    values: Mapping[str, tuple[int | str, float]]
    fixed: tuple[tuple[str, int], ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)
    causal: tuple[str, str] | None = None


@dataclass(frozen=True)
class Budget:
    """How far a result may be off: ``ulps`` of the result for an operator computed element by element, or ``times`` the
    error of eager PyTorch against float64 for one that sums. Exact operators have 0 ulps.
    """

    ulps: float | None = None
    times: float | None = None


@dataclass(frozen=True)
class Places:
    """The elements that an operator reads or writes at places which are data.

    Their number is that of the elements of ``count``, or, without it, of the first result. ``of`` is the parameter that
    is read at these places only; without it they are written, in addition to what is read and written in order. Costs
    follow from it; it promises nothing, and no lock has it.
    """

    of: str | None = None
    count: ShapeRule | None = None


@dataclass(frozen=True)
class Op:
    """One member of the operator set.

    ``overloads`` are the names of the ATen overloads that it absorbs, the normal form first; no PyTorch needs to have
    all. ``clauses`` hold for every implementation; the first is cited as ``name.C1``. ``out`` has the type of each
    result (primitives; a composite's follow from its decomposition). In normal form the ``operands`` (parameter names)
    have the dtype ``compute`` and the sizes that they broadcast to, but for the last dimensions of ``own``: as many as
    it says of an operand. ``dtypes`` are those of its first tensor argument. ``decompose`` takes the overload's
    arguments, fake tensors with symbolic sizes included, and gives its results over simpler members; a composite
    without it has PyTorch's. ``forms`` has the decompositions of those overloads, by full name, whose parameters or
    results are not the normal form's. ``places`` say how much it reads or writes at places that are data. ``numerics``
    are what is known of it as a function of numbers. ``neutral`` says how it leaves out elements. ``broadcasts`` is
    False of an operator that is computed element by element though its operands do not broadcast to one another.
    ``unspecified`` gives the elements of results that may be anything. ``cpu`` is the first release of PyTorch with a
    kernel of it for a CPU, None where none has one; "" is every release that is supported. ``cuda`` says where its
    kernel for CUDA differs from what is declared here. ``row_major`` says that eager PyTorch refuses operands in other
    layouts, or reads them wrongly, or that the operator is about memory: all its overloads, or those that it names.
    ``libraries`` are the kernels that loop targets call. With ``blas`` its kernel is one call of BLAS, which fills the
    tensor that it is given, whatever its strides. ``factors`` is how many times m n min(m, n) scalar operations it
    takes to factorize a matrix. ``sized_by`` is stated where no argument says how many elements the result has: the
    data do, or, of indices, those that are masks. ``new_dims`` are the dimensions that its results have in addition to
    those of its operand. ``barred`` says why no file may call it: it is code, or names what one process has.
    ``no_loops`` says why a primitive has no loop form, where its tags, its profile and its family do not tell.
    """

    name: str
    kind: Kind
    family: str
    overloads: tuple[str, ...]
    doc: str
    clauses: tuple[Clause, ...]
    profile: str = "core"
    out: tuple[Out, ...] | Callable[[Args], tuple[Type | None, ...]] | None = None
    operands: tuple[str, ...] = ()
    own: Mapping[str, int] = field(default_factory=dict)
    compute: DtypeRule | None = None
    requires: tuple[Requires, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    decompose: Callable[..., Any] | None = None
    forms: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    samples: Samples | None = None
    budget: Mapping[torch.dtype, Budget] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    places: Places | None = None
    numerics: Numerics = UNSTATED
    neutral: Neutral | None = None
    unspecified: Unspecified | None = None
    cpu: str | None = ""
    cuda: CudaKernel = AS_SPECIFIED
    libraries: tuple[Library, ...] = ()
    broadcasts: bool = True
    row_major: bool | tuple[str, ...] = False
    blas: bool = False
    factors: float | None = None
    sized_by: Literal["data", "masks"] | None = None
    new_dims: int = 0
    barred: str | None = None
    no_loops: str | None = None
    reason: str | None = None

    @cached_property
    def targets(self) -> tuple[Overload, ...]:
        """Those of its overloads that this PyTorch has, as graphs call them."""
        result = (operator_named(name) for name in self.overloads)
        return tuple(t for t in result if t is not None)

    def kernel_on(self, device: str) -> CudaKernel:
        """How PyTorch's kernel on devices of a type differs from the operator set. A vendor's own kernels do not."""
        return self.cuda if device == "cuda" else AS_SPECIFIED

    def is_row_major(self, overload: str) -> bool:
        """Whether eager PyTorch tells what an overload gives for operands in row-major order only."""
        return self.row_major is True or bool(self.row_major and overload in names(self.row_major))

    @property
    def cited(self) -> tuple[tuple[str, Clause], ...]:
        """Each clause with the label that tests and reports cite it by, as ``add.C1``."""
        return tuple((f"{self.name}.C{i}", clause) for i, clause in enumerate(self.clauses, 1))

    @property
    def in_float32(self) -> bool:
        """Whether a clause says that 16-bit floats are computed in float32. Without one, a composite may round to
        16 bits whatever it computes on the way.
        """
        return any(About.FLOAT32 in clause.about for clause in self.clauses)

    def types(self, args: Args) -> tuple[Type | None, ...]:
        """The types of the results for arguments by parameter name (``bind`` gives them)."""
        match self.out:
            case None:
                raise ValueError(f"the types of {self.name} follow from its decomposition.")
            case tuple():
                return tuple(o.type(args) for o in self.out)
            case rule:
                return rule(args)


class Family:
    """Collects the operators of one module.

    ``@family(overload, ..., clauses=...)`` declares the function below it as the decomposition of a composite, which
    is called like the function. Its keyword parameters that change no number (``layout``, ``pin_memory``) are ``**_``
    there. ``family.primitive`` and ``family.opaque`` declare the others.
    """

    def __init__(self, name: str, profile: str = "core"):
        self.name, self.profile = name, profile
        self.members: dict[str, Op] = {}

    def __call__(self, *overloads: Overload | str, clauses: Stated, **more: Any) -> Callable[..., Any]:
        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            name = more.pop("name", function.__name__.strip("_"))
            self._add(name, "composite", overloads, function.__doc__ or "", clauses, decompose=function, **more)
            return function

        return declare

    def composite(self, name: str, *overloads: Overload | str, doc: str, clauses: Stated, **more: Any) -> None:
        """A composite whose decomposition is PyTorch's."""
        self._add(name, "composite", overloads, doc, clauses, **more)

    def primitive(self, name: str, *overloads: Overload | str, doc: str, clauses: Stated, **more: Any) -> None:
        self._add(name, "primitive", overloads, doc, clauses, **more)

    def opaque(self, name: str, *overloads: Overload | str, doc: str, reason: str, **more: Any) -> None:
        """An operator that is neither decomposed nor asked of a backend, and why."""
        self._add(name, "opaque", overloads, doc, (), reason=reason, **more)

    def _add(
        self, name: str, kind: Kind, overloads: tuple[Overload | str, ...], doc: str, clauses: Stated, **more: Any
    ) -> None:
        if name in self.members:
            raise ValueError(f"{name} is declared twice.")
        facts = {"profile": self.profile, **more}
        self.members[name] = Op(name, kind, self.name, names(overloads), doc, clauses_of(clauses), **facts)


def names(overloads: Iterable[Overload | str]) -> tuple[str, ...]:
    """The full names of overloads: ``aten.add.Tensor`` for the overload itself and for ``add.Tensor``, ``prims.fma``
    for ``prims::fma``. ``default`` may be left out, and is in operators of higher order, which have no overloads.
    """
    return tuple(_full(o) if isinstance(o, str) else str(o) for o in overloads)


def _full(name: str) -> str:
    space, _, rest = name.rpartition("::")
    if space == "higher_order":
        return f"higher_order.{rest}.default"
    return f"{space or 'aten'}.{rest if '.' in rest else f'{rest}.default'}"
