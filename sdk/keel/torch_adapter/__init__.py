"""The only room that touches private PyTorch.  This is its one face; what differs between versions is hidden inside."""
from keel.torch_adapter.calls import Asked, captured_calls, recorded
from keel.torch_adapter.capture import (
    Boxed,
    Captured,
    Kind,
    capture,
    compiled_graphs,
    functional,
    real_tensors,
    tidied,
    unwrapped,
)
from keel.torch_adapter.decompositions import LEFT_OUT, Decomposition, decomposition_of
from keel.torch_adapter.fakes import Fakes, SymbolFacts, expression_data, facts_of
from keel.torch_adapter.fault import Fault
from keel.torch_adapter.foreign import asks_again, given_to, torch_compile_backend
from keel.torch_adapter.graphs import GraphPair
from keel.torch_adapter.layouts import FAULTS, Transformed, fault_of, laid_out
from keel.torch_adapter.modes import without_autocast, without_modes
from keel.torch_adapter.numbers import NotRecorded, number
from keel.torch_adapter.observe import observed
from keel.torch_adapter.operators import (
    Parameter,
    gives_tensors,
    has_effect,
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
from keel.torch_adapter.recorder import fake_mode_of, record
from keel.torch_adapter.streams import cuda_stream, works_on_streams
from keel.torch_adapter.symbols import (
    Symbolic,
    constant_of,
    dim_of,
    expression,
    hint_of,
    holds,
    late,
    of_some,
    promise,
    rename,
    same,
    symbols_of,
)
from keel.torch_adapter.trees import Tree, flat, flatten_call, is_call_tree, nest, tree_of, tree_text, unflatten

__all__ = [
    "FAULTS", "LEFT_OUT", "Asked", "Boxed", "Captured", "Decomposition", "Fakes", "Fault", "GraphPair", "Kind",
    "NotRecorded", "Parameter", "SymbolFacts", "Symbolic", "Transformed", "Tree", "asks_again", "capture",
    "captured_calls", "compiled_graphs", "constant_of", "cuda_stream", "decomposition_of", "dim_of", "expression",
    "expression_data", "facts_of", "fake_mode_of", "fault_of", "flat", "flatten_call", "functional", "given_to",
    "gives_tensors", "has_effect", "hint_of", "holds", "is_assertion", "is_call_tree", "is_operator", "is_overload",
    "is_random", "is_taken_apart", "laid_out", "late", "makes_sizes", "may_alias", "nest", "number", "observed",
    "of_some", "operator_named", "overload_names", "parameters", "promise", "real_tensors", "record", "recorded",
    "registered_names", "rename", "same", "signature", "symbols_of", "tidied", "torch_compile_backend", "tree_of",
    "tree_text", "unflatten", "unwrapped", "without_autocast", "without_modes", "works_on_streams", "writes",
]
