"""The loop level: kernels as frozen data, printed, parsed, verified, interpreted."""

from keel.errors import BadIndex
from keel.loops.index import (
    Axis,
    Div,
    Index,
    Loaded,
    Mod,
    axes_of,
    bounds,
    dims_of,
    index,
    loaded_of,
    quotient,
    substitute,
)
from keel.loops.interpret import interpret
from keel.loops.ir import (
    Apply,
    Buffer,
    Check,
    Const,
    Kernel,
    Load,
    Loop,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
    dtypes_of,
    operands_of,
    results_of,
    show,
    walk,
)
from keel.loops.legalize_scalars import Program, combination, expand
from keel.loops.monoids import MONOIDS, Monoid
from keel.loops.parser import parse
from keel.loops.scalar_ops import SCALARS, ByKind, Scalar, ScalarText, scalar_text
from keel.loops.size_text import size_text
from keel.loops.symbolic_sizes import evaluate, non_negative
from keel.loops.verify import verify
from keel.types import DTYPE_NAMES

__all__ = [
    "DTYPE_NAMES",
    "MONOIDS",
    "SCALARS",
    "Apply",
    "Axis",
    "BadIndex",
    "Buffer",
    "ByKind",
    "Check",
    "Const",
    "Div",
    "Index",
    "Kernel",
    "Load",
    "Loaded",
    "Loop",
    "Mod",
    "Monoid",
    "Position",
    "Program",
    "Reduce",
    "Scalar",
    "ScalarText",
    "Scan",
    "Stmt",
    "Store",
    "axes_of",
    "bounds",
    "combination",
    "dims_of",
    "dtypes_of",
    "evaluate",
    "expand",
    "index",
    "interpret",
    "loaded_of",
    "non_negative",
    "operands_of",
    "parse",
    "quotient",
    "results_of",
    "scalar_text",
    "show",
    "size_text",
    "substitute",
    "verify",
    "walk",
]
