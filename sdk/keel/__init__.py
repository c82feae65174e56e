"""Keel: put a PyTorch 2 backend under any accelerator.  These are the public names, and nothing else.

``import keel`` loads neither PyTorch nor the rooms of Keel: a name loads its room when it is first used (PEP 562).
The imports under ``TYPE_CHECKING`` say the same as the tables below to type checkers and editors.
"""
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keel.compile import compile

if TYPE_CHECKING:
    from keel import closure, coverage, documents, partition
    from keel.batch import Asked, Batch, compile_calls
    from keel.cache import Cache, compile_library, compiler_fingerprint, load_library, run_compiler
    from keel.compiler import compiled_graphs
    from keel.cost import Cost, Link, Pattern, Price, price, read_sheets
    from keel.discovery import Discovery, discover, find, resolve, survey
    from keel.errors import BadIndex, KeelError, KeelWarning
    from keel.explanation import Explanation, explain
    from keel.export import compile_exported
    from keel.externs import aten_externs
    from keel.loop_level import fitted, loop_backend
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
    from keel.spec import MEMBERS, OPSET, About, Clause, Op, decomposition_of, overload_of
    from keel.spec.bind import bind
    from keel.torch_adapter import control, torch_compile_backend, universe
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

_NAMES: Mapping[str, tuple[str, ...]] = {
    "keel.batch": ("Asked", "Batch", "compile_calls"),
    "keel.cache": ("Cache", "compile_library", "compiler_fingerprint", "load_library", "run_compiler"),
    "keel.compiler": ("compiled_graphs",),
    "keel.cost": ("Cost", "Link", "Pattern", "Price", "price", "read_sheets"),
    "keel.discovery": ("Discovery", "discover", "find", "resolve", "survey"),
    "keel.errors": ("BadIndex", "KeelError", "KeelWarning"),
    "keel.explanation": ("Explanation", "explain"),
    "keel.export": ("compile_exported",),
    "keel.externs": ("aten_externs",),
    "keel.loop_level": ("fitted", "loop_backend"),
    "keel.loops.dims": ("evaluate", "non_negative"),
    "keel.loops.expand": ("Program", "combination", "expand"),
    "keel.loops.index": ("Axis", "Div", "Index", "Loaded", "Mod", "axes_of", "bounds", "dims_of", "index", "loaded_of",
        "quotient", "substitute"),
    "keel.loops.interpret": ("interpret",),
    "keel.loops.ir": ("Apply", "Buffer", "Check", "Const", "Kernel", "Load", "Loop", "Position", "Reduce", "Scan",
        "Stmt", "Store", "dtypes_of", "results_of", "walk"),
    "keel.loops.monoids": ("MONOIDS", "Monoid"),
    "keel.loops.scalars": ("SCALARS", "ByKind", "Scalar", "ScalarText", "scalar_text"),
    "keel.loops.size_text": ("size_text",),
    "keel.loops.text": ("parse", "show"),
    "keel.loops.verify": ("verify",),
    "keel.plugin": ("API", "Backend", "Call", "Extern", "Launcher", "Limits", "LoopTarget", "Refusal", "Rule", "Source",
        "Staged", "Support", "refusal"),
    "keel.serialise.read": ("load_graph",),
    "keel.serialise.write": ("save_graph",),
    "keel.spec": ("MEMBERS", "OPSET", "About", "Clause", "Op", "decomposition_of", "overload_of"),
    "keel.spec.bind": ("bind",),
    "keel.torch_adapter": ("torch_compile_backend",),
    "keel.torch_adapter.streams": ("cuda_stream",),
    "keel.types": ("DTYPE_NAMES", "Dim", "SymType", "TensorType"),
}
"""The names that each room gives to ``keel``."""
_MODULES: Mapping[str, str] = {
    "closure": "keel.closure",
    "control": "keel.torch_adapter.control",
    "coverage": "keel.coverage",
    "documents": "keel.documents",
    "partition": "keel.partition",
    "universe": "keel.torch_adapter.universe",
}
"""The public names that are modules themselves."""
_HOMES = {name: room for room, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name that has not been used yet."""
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
