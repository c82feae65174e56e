"""What stays outside: neither decomposed nor asked of a backend, each with its reason.

A program that uses one of these has it run by eager PyTorch between its compiled parts, or is refused; at most 40 names
in the whole operator set.
"""

from __future__ import annotations

from keel.spec.op import Family
from keel.spec.pytorch_kernels import Library

family = Family("opaque", profile="host")

family.opaque(
    "equal",
    "equal",
    doc="Whether two tensors have equal sizes and elements, as a Python bool.",
    reason="The host reads its answer to decide what runs next, so it ends a graph; torch.eq(a, b).all() stays in one.",
)
family.opaque(
    "allclose",
    "allclose",
    doc="Whether two tensors are equal to within tolerances, as a Python bool.",
    reason="The host reads its answer to decide what runs next, so it ends a graph; torch.isclose(a, b).all() stays in "
    "one.",
)
family.opaque(
    "lstsq",
    "linalg_lstsq",
    doc="Least squares, with residuals, rank and singular values by the driver named.",
    reason="The sizes of its residuals and singular values depend on the rank that it finds and on the driver, and "
    "PyTorch gives it no types while tracing; torch.linalg.pinv(a) @ b has them.",
)
family.opaque(
    "gamma_gradient",
    "_standard_gamma_grad",
    doc="The derivative of a gamma draw by its shape parameter.",
    reason="It is defined by PyTorch's own series and asymptotic expansions only, and has no types while tracing.",
)
family.opaque(
    "dirichlet_gradient",
    "_dirichlet_grad",
    doc="The derivative of a Dirichlet draw by its parameters.",
    reason="It is defined by PyTorch's own series and asymptotic expansions only, and has no types while tracing.",
)
family.opaque(
    "process_group_call",
    "c10d::allreduce_",
    "c10d::allgather_",
    "c10d::_allgather_base_",
    "c10d::reduce_scatter_",
    "c10d::_reduce_scatter_base_",
    "c10d::alltoall_",
    "c10d::alltoall_base_",
    "c10d::broadcast_",
    "c10d::reduce_",
    "c10d::gather_",
    "c10d::scatter_",
    "c10d::send",
    "c10d::recv_",
    "c10d::recv_any_source_",
    "c10d::barrier",
    "c10d::monitored_barrier_",
    "c10d::allgather_coalesced_",
    "c10d::allgather_into_tensor_coalesced_",
    "c10d::allreduce_coalesced_",
    "c10d::reduce_scatter_tensor_coalesced_",
    "c10d::check_for_nan",
    doc="A collective on a process group object.",
    profile="collectives",
    reason="It takes a process group and gives a handle to wait on, neither of which is a value of a graph; the "
    "functional collectives of torch.distributed mean the same.",
)
family.opaque(
    "vendor_rnn",
    "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward",
    "_cudnn_rnn",
    "_cudnn_rnn_backward",
    "miopen_rnn",
    "miopen_rnn_backward",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_fused_gru_cell",
    "_thnn_fused_gru_cell_backward",
    doc="A recurrent layer or cell of one vendor's library.",
    reason="PyTorch picks it by the device that it traces for, and it keeps a workspace in a form that only its own "
    "backward reads; traced for a neutral device the same layers are written out.",
    libraries=(Library(("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"), "cpu"),),
)
family.opaque(
    "print",
    "_print",
    "higher_order::print",
    doc="A text written to the host's output.",
    reason="It acts on the host's streams; nothing of it can be computed on a device.",
    barred="It prints, by a format that reaches into objects.",
)
family.opaque(
    "script_object_call",
    "higher_order::call_torchbind",
    doc="A method of a C++ object.",
    reason="The object's class is the user's, with state that no graph tells.",
    profile="control",
    barred="It calls a method of an object.",
)
family.opaque(
    "inline_assembly",
    "higher_order::inline_asm_elementwise",
    doc="Machine code of one device, per element.",
    reason="It is written in one device's instructions.",
    profile="control",
    barred="Its text is code of a device.",
)
family.opaque(
    "run_with_generator",
    "higher_order::graphsafe_run_with_rng_state",
    doc="An operator with a CUDA generator.",
    reason="It takes a generator object, which a graph cannot hold; run_with_rng_state takes a state as a tensor.",
    profile="control",
)
