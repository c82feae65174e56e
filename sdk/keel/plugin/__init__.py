"""The classes of a plugin. A backend is a value; a refusal is a sentence.

``Backend`` is the graph level: it claims operator calls and compiles graphs made of calls it claimed.  ``LoopTarget``
is the loop level: tables and two functions, which ``keel.loop_backend`` turns into a Backend.
"""

from keel.loops.scalar_ops import ScalarText
from keel.plugin.api import API, OLDEST_API
from keel.plugin.backend import Backend
from keel.plugin.compile_context import CompileContext, Constant, PreparedConstants, SizeRange, Staged, with_context
from keel.plugin.device_memory import DeviceMemory, memory_of
from keel.plugin.graph_claims import CallMatch, CallPattern, Fusion, Veto, Wildcard
from keel.plugin.machine_code import CodeObject, KernelFunction
from keel.plugin.numeric_facts import Arithmetic
from keel.plugin.options import Option
from keel.plugin.support import Refusal, Refuses, Rule, Support
from keel.plugin.target import (
    Extern,
    Launcher,
    LayoutPreference,
    Limits,
    LoopTarget,
    PackedForm,
    Source,
)
from keel.spec.pytorch_kernels import BiasPass, Packed
from keel.torch_adapter import expression_data, expression_of, has_kernel, owned, stream_handle, torch_compile_backend
from keel.types import Call, Dim, SymType, TensorType

__all__ = [
    "API",
    "OLDEST_API",
    "Arithmetic",
    "Backend",
    "BiasPass",
    "Call",
    "CallMatch",
    "CallPattern",
    "CodeObject",
    "CompileContext",
    "Constant",
    "DeviceMemory",
    "Dim",
    "Extern",
    "Fusion",
    "KernelFunction",
    "Launcher",
    "LayoutPreference",
    "Limits",
    "LoopTarget",
    "Option",
    "Packed",
    "PackedForm",
    "PreparedConstants",
    "Refusal",
    "Refuses",
    "Rule",
    "ScalarText",
    "SizeRange",
    "Source",
    "Staged",
    "Support",
    "SymType",
    "TensorType",
    "Veto",
    "Wildcard",
    "expression_data",
    "expression_of",
    "has_kernel",
    "memory_of",
    "owned",
    "stream_handle",
    "torch_compile_backend",
    "with_context",
]

cuda_stream = stream_handle  # its name until API 2, for one more release
