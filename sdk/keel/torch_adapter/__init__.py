"""The only room that touches private PyTorch. This package is its interface, and hides differences between PyTorch
versions.
"""

from keel.torch_adapter.allocation import Allocator, allocator_on
from keel.torch_adapter.capture import (
    Boxed,
    Captured,
    Kind,
    Saveable,
    Saves,
    capture,
    compiled_graphs,
    expects_backward,
    finished,
    functional,
    is_saved_by_force,
    lifted,
    real_tensors,
    tidied,
    unwrapped,
)
from keel.torch_adapter.captured_work import captured_work
from keel.torch_adapter.decompositions import LEFT_OUT, Decomposition, decomposition_of
from keel.torch_adapter.device_graphs import GraphPair
from keel.torch_adapter.device_kernels import has_kernel
from keel.torch_adapter.donated import owned
from keel.torch_adapter.dynamo_facts import Compilation, DynamoFacts, GraphBreak
from keel.torch_adapter.fakes import Fakes, SymbolFacts, expression_data, expression_of, facts_of
from keel.torch_adapter.foreign import asks_again, given_to, torch_compile_backend
from keel.torch_adapter.functional_program import FunctionalProgram, SizesFrom, traced_program
from keel.torch_adapter.lasting_values import LastingValue
from keel.torch_adapter.lazy_bits import has_negative_bit
from keel.torch_adapter.lazy_module import lazy_module
from keel.torch_adapter.meta_bugs.fft_strides import Transformed
from keel.torch_adapter.meta_bugs.table import bug_of, fix_strides
from keel.torch_adapter.modes import without_autocast, without_modes
from keel.torch_adapter.mutations import Mutations, copy_of
from keel.torch_adapter.node_origin import origin_of
from keel.torch_adapter.numbers import NotRecorded, number
from keel.torch_adapter.observe import observed
from keel.torch_adapter.operators import (
    Parameter,
    gives_tensors,
    has_effect,
    hides_alias,
    is_assertion,
    is_operator,
    is_overload,
    is_random,
    is_taken_apart,
    makes_sizes,
    may_alias,
    operator_named,
    overload_names,
    parameters,
    registered_names,
    signature,
    writes,
)
from keel.torch_adapter.overload_calls import Asked, captured_calls, captured_function, recorded
from keel.torch_adapter.packed_convolution import (
    pack_convolution,
    packed_convolution,
    packs_dtype,
)
from keel.torch_adapter.packed_linear import (
    pack_linear,
    packed_linear,
    packs_linear_dtype,
    packs_linear_for_speed,
)
from keel.torch_adapter.profiling import DeviceType, Range, fast_range, graph_range, is_profiling
from keel.torch_adapter.recorder import fake_mode_of, fake_mode_of_value, record
from keel.torch_adapter.shape_guards import add_guards, guards_of
from keel.torch_adapter.stable_calls import StableArgument, StableCall, stable_call
from keel.torch_adapter.stored_tensors import StoredKind, StoredTensor
from keel.torch_adapter.streams import is_capturing, stream_handle, works_on_streams
from keel.torch_adapter.structured_trace import trace_artifact
from keel.torch_adapter.sympy_expressions import (
    Symbolic,
    constant_of,
    dim_of,
    expression,
    hint_of,
    hints_of,
    holds,
    late,
    of_some,
    promise,
    rename,
    same,
    symbols_of,
    tensor_type,
)
from keel.torch_adapter.trees import (
    Tree,
    flat,
    flatten_call,
    is_call_tree,
    map_leaves,
    nest,
    registered_containers,
    tree_of,
    tree_text,
    unflatten,
)

__all__ = [
    "LEFT_OUT",
    "Allocator",
    "Asked",
    "Boxed",
    "Captured",
    "Compilation",
    "Decomposition",
    "DeviceType",
    "DynamoFacts",
    "Fakes",
    "FunctionalProgram",
    "GraphBreak",
    "GraphPair",
    "Kind",
    "LastingValue",
    "Mutations",
    "NotRecorded",
    "Parameter",
    "Range",
    "Saveable",
    "Saves",
    "SizesFrom",
    "StableArgument",
    "StableCall",
    "StoredKind",
    "StoredTensor",
    "SymbolFacts",
    "Symbolic",
    "Transformed",
    "Tree",
    "add_guards",
    "allocator_on",
    "asks_again",
    "bug_of",
    "capture",
    "captured_calls",
    "captured_function",
    "captured_work",
    "compiled_graphs",
    "constant_of",
    "copy_of",
    "decomposition_of",
    "dim_of",
    "expects_backward",
    "expression",
    "expression_data",
    "expression_of",
    "facts_of",
    "fake_mode_of",
    "fake_mode_of_value",
    "fast_range",
    "finished",
    "fix_strides",
    "flat",
    "flatten_call",
    "functional",
    "given_to",
    "gives_tensors",
    "graph_range",
    "guards_of",
    "has_effect",
    "has_kernel",
    "has_negative_bit",
    "hides_alias",
    "hint_of",
    "hints_of",
    "holds",
    "is_assertion",
    "is_call_tree",
    "is_capturing",
    "is_operator",
    "is_overload",
    "is_profiling",
    "is_random",
    "is_saved_by_force",
    "is_taken_apart",
    "late",
    "lazy_module",
    "lifted",
    "makes_sizes",
    "map_leaves",
    "may_alias",
    "nest",
    "number",
    "observed",
    "of_some",
    "operator_named",
    "origin_of",
    "overload_names",
    "owned",
    "pack_convolution",
    "pack_linear",
    "packed_convolution",
    "packed_linear",
    "packs_dtype",
    "packs_linear_dtype",
    "packs_linear_for_speed",
    "parameters",
    "promise",
    "real_tensors",
    "record",
    "recorded",
    "registered_containers",
    "registered_names",
    "rename",
    "same",
    "signature",
    "stable_call",
    "stream_handle",
    "symbols_of",
    "tensor_type",
    "tidied",
    "torch_compile_backend",
    "trace_artifact",
    "traced_program",
    "tree_of",
    "tree_text",
    "unflatten",
    "unwrapped",
    "without_autocast",
    "without_modes",
    "works_on_streams",
    "writes",
]
