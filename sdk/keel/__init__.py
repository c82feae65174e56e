"""Keel: put a PyTorch 2 backend under any accelerator.  These are the public names, and nothing else."""
from importlib import import_module
from types import ModuleType

from keel import documents
from keel.batch import Asked, Batch, compile_calls
from keel.cache import Cache, compile_library, compiler_fingerprint, load_library, run_compiler
from keel.compile import compile, compiled_graphs
from keel.cost import Cost, Link, Pattern, Price, price, read_sheets
from keel.discover import Discovery, discover, find, resolve, survey
from keel.errors import BadIndex, KeelError, KeelWarning
from keel.explain import Explanation, explain
from keel.export import compile_exported
from keel.externs import aten_externs
from keel.loop_backend import fitted, loop_backend
from keel.loops.dims import evaluate, non_negative
from keel.loops.expand import Program, combination, expand
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
    results_of,
    walk,
)
from keel.loops.monoids import MONOIDS, Monoid
from keel.loops.scalars import SCALARS, ByKind, Scalar, ScalarText, scalar_text
from keel.loops.size_text import size_text
from keel.loops.text import parse, show
from keel.loops.verify import verify
from keel.plugin import (
    API,
    Backend,
    Call,
    Extern,
    Launcher,
    Limits,
    LoopTarget,
    Refusal,
    Rule,
    Source,
    Staged,
    Support,
    refusal,
)
from keel.serialise.read import load_graph
from keel.serialise.write import save_graph
from keel.spec import MEMBERS, OPSET, About, Clause, Op, bind, decomposition_of, overload_of
from keel.torch_adapter import torch_compile_backend
from keel.torch_adapter.streams import cuda_stream
from keel.types import DTYPE_NAMES, Dim, SymType, TensorType

__all__ = [
    "API",
    "DTYPE_NAMES",
    "MEMBERS",
    "MONOIDS",
    "OPSET",
    "SCALARS",
    "About",
    "Apply",
    "Asked",
    "Axis",
    "Backend",
    "BadIndex",
    "Batch",
    "Buffer",
    "ByKind",
    "Cache",
    "Call",
    "Check",
    "Clause",
    "Const",
    "Cost",
    "Dim",
    "Discovery",
    "Div",
    "Explanation",
    "Extern",
    "Index",
    "KeelError",
    "KeelWarning",
    "Kernel",
    "Launcher",
    "Limits",
    "Link",
    "Load",
    "Loaded",
    "Loop",
    "LoopTarget",
    "Mod",
    "Monoid",
    "Op",
    "Pattern",
    "Position",
    "Price",
    "Program",
    "Reduce",
    "Refusal",
    "Rule",
    "Scalar",
    "ScalarText",
    "Scan",
    "Source",
    "Staged",
    "Stmt",
    "Store",
    "Support",
    "SymType",
    "TensorType",
    "aten_externs",
    "axes_of",
    "bind",
    "bounds",
    "closure",
    "combination",
    "compile",
    "compile_calls",
    "compile_exported",
    "compile_library",
    "compiled_graphs",
    "compiler_fingerprint",
    "control",
    "coverage",
    "cuda_stream",
    "decomposition_of",
    "dims_of",
    "discover",
    "documents",
    "dtypes_of",
    "evaluate",
    "expand",
    "explain",
    "find",
    "fitted",
    "index",
    "interpret",
    "load_graph",
    "load_library",
    "loaded_of",
    "loop_backend",
    "non_negative",
    "overload_of",
    "parse",
    "partition",
    "price",
    "quotient",
    "read_sheets",
    "refusal",
    "resolve",
    "results_of",
    "run_compiler",
    "save_graph",
    "scalar_text",
    "show",
    "size_text",
    "substitute",
    "survey",
    "torch_compile_backend",
    "universe",
    "verify",
    "walk",
]


_LATE = {"closure": "keel.closure", "control": "keel.torch_adapter.control", "coverage": "keel.coverage",
         "universe": "keel.torch_adapter.universe"}


def __getattr__(name: str) -> ModuleType:
    """What takes long to import, and few need."""
    if name in _LATE:
        return import_module(_LATE[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
