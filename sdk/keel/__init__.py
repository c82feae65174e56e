"""Keel: put a PyTorch 2 backend under any accelerator.  These are the names that a backend needs first.

The rest is in the public rooms: ``keel.plugin`` (all that a vendor writes), ``keel.loops`` (kernels as data),
``keel.opset`` (the operators), ``keel.testing`` (what a backend's tests need), ``keel.cost`` (data sheets),
``keel.cache`` (compiled code in files), ``keel.launcher`` (launchers of kernels in C), ``keel.serialize`` (graphs as
files) and ``keel.minify`` (delta debugging, and tensors as text).

``import keel`` loads neither PyTorch nor the rooms of Keel: a name loads its room when it is first used (PEP 562).
The imports under ``TYPE_CHECKING`` say the same as the tables below to type checkers and editors.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keel.compile import compile

if TYPE_CHECKING:
    from keel.artifact.runtime_c import runtime_sources
    from keel.cost import Cost
    from keel.errors import KeelError, KeelWarning
    from keel.explanation import explain
    from keel.export import compile_exported
    from keel.externs import aten_externs
    from keel.loop_level import loop_backend
    from keel.packages.load_package import load_package
    from keel.packages.package import package
    from keel.plugin import Backend, Call, Extern, Launcher, Limits, LoopTarget, Refusal, Rule, Source, Staged, Support
    from keel.standalone import Artifact, standalone_compile
    from keel.types import Dim, SymType, TensorType

__all__ = [
    "Artifact",
    "Backend",
    "Call",
    "Cost",
    "Dim",
    "Extern",
    "KeelError",
    "KeelWarning",
    "Launcher",
    "Limits",
    "LoopTarget",
    "Refusal",
    "Rule",
    "Source",
    "Staged",
    "Support",
    "SymType",
    "TensorType",
    "aten_externs",
    "compile",
    "compile_exported",
    "explain",
    "load_package",
    "loop_backend",
    "package",
    "runtime_sources",
    "standalone_compile",
]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "keel.artifact.runtime_c": ("runtime_sources",),
    "keel.packages.load_package": ("load_package",),
    "keel.packages.package": ("package",),
    "keel.cost": ("Cost",),
    "keel.errors": ("KeelError", "KeelWarning"),
    "keel.explanation": ("explain",),
    "keel.export": ("compile_exported",),
    "keel.externs": ("aten_externs",),
    "keel.loop_level": ("loop_backend",),
    "keel.plugin": (
        "Backend",
        "Call",
        "Extern",
        "Launcher",
        "Limits",
        "LoopTarget",
        "Refusal",
        "Rule",
        "Source",
        "Staged",
        "Support",
    ),
    "keel.standalone": ("Artifact", "standalone_compile"),
    "keel.types": ("Dim", "SymType", "TensorType"),
}
"""The room of each public name."""
_MOVED: Mapping[str, tuple[str, ...]] = {
    "keel.cache": ("Cache", "compile_library", "compiler_fingerprint", "load_library", "run_compiler"),
    "keel.cost": ("Link", "Pattern", "Price", "price", "read_sheets"),
    "keel.opset": ("MEMBERS", "OPSET", "About", "Clause", "Op", "bind", "decomposition_of", "overload_of"),
    "keel.plugin": ("API", "cuda_stream", "torch_compile_backend"),
    "keel.serialize": ("load_graph", "save_graph"),
    "keel.testing": (
        "Asked",
        "Batch",
        "Discovery",
        "Explanation",
        "compile_calls",
        "compiled_graphs",
        "discover",
        "find",
        "fitted",
        "refusal",
        "resolve",
        "survey",
    ),
}
"""Names that were public here, by the room where they are now.  They are found for one more release."""
_ROOMS = ("cache", "cost", "launcher", "loops", "minify", "opset", "plugin", "serialize", "testing")
"""The public rooms, which are loaded when they are first used, like names."""
_MODULES: Mapping[str, str] = {
    **{room: f"keel.{room}" for room in _ROOMS},
    "closure": "keel.closure",
    "control": "keel.torch_adapter.higher_order",
    "coverage": "keel.coverage",
    "documents": "keel.documents",
    "file_readers": "keel.file_readers",
    "harvest": "keel.torch_adapter.harvest",
    "named_models": "keel.named_models",
    "partition": "keel.placement",
    "placement": "keel.placement",
    "serialise": "keel.serialise",
    "universe": "keel.torch_adapter.universe",
}
"""The public rooms, and what Keel's own tools use besides; nothing is promised of that."""
_HOMES = {name: room for table in (_NAMES, _MOVED) for room, names in table.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name that has not been used yet."""
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif not name.startswith("_") and name in (loops := import_module("keel.loops")).__all__:
        value = getattr(loops, name)  # they all were public here, and are for one more release
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
