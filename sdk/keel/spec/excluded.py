"""What Opset 1.0 leaves out by decision and not by chance: layouts, dtypes and operators, each with its reason.

A tensor of a layout or dtype that is left out has no type, so calls on one run in eager PyTorch, or are refused where
the user is strict. No backend has to take an operator that is left out, but a backend of last resort may run it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from keel.errors import KeelError
from keel.spec.opset import MEMBERS
from keel.spec.versions import CURRENT
from keel.types import operator_name


@dataclass(frozen=True)
class Exclusion:
    """One thing that is left out: ``what`` says what it is, ``reason`` says why, ``do`` what to write
    instead. ``operators`` are patterns of full names (``aten._sparse_*``). Of ``typeless`` ones the results have no
    type either, so a graph is refused for them, too.
    """

    name: str
    what: str
    reason: str
    do: str
    operators: tuple[str, ...] = ()
    layouts: tuple[torch.layout, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    typeless: bool = False


def _layouts(*names: str) -> tuple[torch.layout, ...]:
    """Those that this PyTorch has."""
    return tuple(getattr(torch, n) for n in names if hasattr(torch, n))


def _dtypes(*names: str) -> tuple[torch.dtype, ...]:
    """Those that this PyTorch has."""
    return tuple(getattr(torch, n) for n in names if hasattr(torch, n))


def _aten(names: str) -> tuple[str, ...]:
    """Patterns of ATen overloads; a name without a dot stands for all overloads of it."""
    return tuple(f"aten.{n}" if "." in n else f"aten.{n}.*" for n in names.split())


def _higher(names: str) -> tuple[str, ...]:
    return tuple(f"higher_order.{n}.default" for n in names.split())


_BITS = tuple(f"{sign}int{n}" for sign in ("", "u") for n in range(1, 8))

EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        "sparse layouts",
        "a sparse tensor (COO, CSR, CSC, BSR, BSC)",
        "The number of its elements depends on data, and it consists of several tensors. Sizes and strides do not say "
        "where an element lies, but every type rule, loop and buffer of Keel relies on them. Dynamo ends a graph at "
        "such a tensor, and tracing the backward of some products ends the process.",
        "Convert it with to_dense(), keep that code out of the compiled function, or pass its parts (indices and "
        "values) as tensors of their own: index_select, index_add, scatter_add and segment_reduce work on them.",
        _aten(
            "*sparse* _coalesce* coalesce is_coalesced _to_dense _indices _values indices values *_indices "
            "*indices_copy *values_copy _nnz _dimI _dimV dense_dim hspmm _spsolve _spdiags native_norm _cslt_* "
            "_convert_indices_from_*"
        ),
        _layouts("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"),
        typeless=True,
    ),
    Exclusion(
        "nested tensors of strided layout",
        "a nested tensor of strided layout",
        "Its sizes are themselves tensors on the host, and PyTorch's compiler does not take it. A jagged nested tensor "
        "is taken apart into values and offsets before a graph is captured, and compiles.",
        "Make it with layout=torch.jagged.",
        _aten("*_nested_* to_padded_tensor linear_backward matmul_backward"),
        typeless=True,
    ),
    Exclusion(
        "jagged tensors that are not taken apart",
        "a jagged nested tensor as one value",
        "It is a Python class around values and offsets; a graph holds those.",
        "Compile with torch.compile or torch.export, which take it apart.",
        layouts=_layouts("jagged"),
    ),
    Exclusion(
        "oneDNN layouts",
        "a tensor in a layout of oneDNN (mkldnn)",
        "Its memory is in a form that only that library reads, and PyTorch's fake tensors say that it is strided.",
        "Convert it with to_dense(); a backend chooses the layouts of its own intermediate values.",
        (*_aten("*mkldnn*"), "mkldnn.*", "mkldnn_prepacked.*", "mkl.*", "onednn.*"),
        _layouts("_mkldnn"),
        typeless=True,
    ),
    Exclusion(
        "quantized tensors",
        "a tensor that carries its own scale and zero point",
        "PyTorch has deprecated the dtypes quint8, qint8 and qint32, gives them no types while tracing (its fake "
        "tensors say float32), and works on packed weights that are objects.",
        "Use integers with scales as tensors of their own: quantized_decomposed (what torch.export's quantizers write) "
        "or torchao.",
        (
            *_aten(
                "quantize_per_* dequantize int_repr q_* qscheme quantized_* _make_per_*_quantized_tensor "
                "_empty_*affine_quantized empty_quantized _choose_qparams_per_tensor choose_qparams_optimized "
                "fbgemm_* _flash_attention_forward.quantized _scaled_dot_product_flash_attention.quantized"
            ),
            "quantized.*",
            "_quantized.*",
            "quantization.*",
            "sparse.*",
        ),
        dtypes=_dtypes("quint8", "qint8", "qint32", "quint4x2", "quint2x4"),
        typeless=True,
    ),
    Exclusion(
        "complex of half precision",
        "complex32 (chalf) and bcomplex32",
        "PyTorch computes conversions and little else with it on a CPU, so there is no reference for a result. No "
        "kernel gives the results that its fake tensors promise.",
        "Use complex64, or keep the parts in a float16 tensor with a last dimension of 2.",
        dtypes=_dtypes("complex32", "bcomplex32"),
    ),
    Exclusion(
        "dtypes without arithmetic",
        "a dtype of less than a byte, of bits, or of exponents only",
        "PyTorch has no kernels for it but conversions, or one matrix product of one vendor.",
        "Keep the bits in a uint8 tensor; shifts and masks unpack it.",
        dtypes=_dtypes(
            "float8_e8m0fnu", "float4_e2m1fn_x2", "bit", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", *_BITS
        ),
    ),
    Exclusion(
        "named tensors",
        "a tensor whose dimensions have names",
        "PyTorch no longer develops them, and its compiler never supported them.",
        "Count dimensions.",
        _aten(
            "empty.names full.names ones.names zeros.names rand.names rand.generator_with_names randn.names "
            "randn.generator_with_names"
        ),
    ),
    Exclusion(
        "weights packed for one library",
        "weights in the packing of one library's kernel",
        "Each kernel defines the meaning of the bytes, which differs between devices.",
        "Use int8 weights with scales (_weight_int8pack_mm, quantized_decomposed), or unpack with shifts and masks.",
        _aten("*int4pack* _dyn_quant_* _mixed_dtypes_linear _wrapped_*"),
    ),
    Exclusion(
        "kernels of one vendor's library",
        "a call of one vendor's kernel that PyTorch picks by device",
        "Graphs are captured for no device in particular, and hold the operator that such a kernel implements.",
        "Call the operator of torch.nn.functional that it implements.",
        _aten(
            "cudnn_* _cudnn_* miopen_* _use_cudnn_* _use_miopen_* *mps* _triton_* _efficient_attention_* "
            "_nnpack_* _fused_sdp_choice _batch_norm_impl_index* _thnn_* lstm_mps_backward max_pool2d_backward"
        ),
    ),
    Exclusion(
        "optimizers as one call",
        "a fused optimizer's step",
        "PyTorch keeps its compiler out of them, and fails to make them functional where a list is empty.",
        "Make the optimizer without fused=True: the operators of foreach=True and of single tensors compile.",
        _aten("_fused_adam* _fused_sgd* _fused_adagrad*"),
    ),
    Exclusion(
        "operators that hide a write",
        "an operator that writes to running statistics without its schema saying so",
        "A graph is a function of its inputs, and no graph can say that this one is not.",
        "Compile without synchronized batch norm, or leave that layer out (torch.compiler.disable).",
        _aten("batch_norm_gather_stats* batch_norm_update_stats"),
    ),
    Exclusion(
        "operators whose fake kernels give wrong types",
        "an operator whose fake kernel promises other dtypes than it gives",
        "A program that is compiled to the promise computes in other dtypes than eager PyTorch.",
        "Use choose_qparams_per_token_asymmetric.",
        ("quantized_decomposed.choose_qparams_per_token.default",),
    ),
    Exclusion(
        "observers of eager quantization",
        "an observer of torch.ao's eager quantization, or a call that only autograd decomposes",
        "It decides by the values of switches on the host, and PyTorch has deprecated it.",
        "aminmax, choose_qparams and the fake_quantize operators are members.",
        (*_aten("_fused_moving_avg_obs_fq_helper*"), "quantized_decomposed.fake_quant_per_channel.default"),
    ),
    Exclusion(
        "sequences packed by length",
        "a PackedSequence",
        "The sizes of its parts are read off lengths on the host, and PyTorch ends a graph there.",
        "Pad the sequences, and mask the elements beyond their lengths.",
        _aten("_pack_padded_sequence*"),
    ),
    Exclusion(
        "internals of autograd and functionalization",
        "a call that only PyTorch's own machinery makes",
        "It is gone before a graph is captured: duals of forward gradients, storage that changes hands, inverses of "
        "views, memory that is only named.",
        "There is nothing to do: no program calls it.",
        (
            *_aten(
                "_fw_primal* _make_dual* _new_zeros_with_same_feature_meta _has_same_storage_numel is_set_to set "
                "_copy_from* _resize_output slice_inverse _lazy_clone _make_dep_token _foobar _test_* from_file "
                "_pin_memory is_pinned"
            ),
            "prims.maximum_value.*",
            "prims.minimum_value.*",
            "prims.copy_strided.*",
            "debugprims.*",
            "_test.*",
            "rngprims.*",
            "debug_mode_ops.*",
            "export.*",
            "static_runtime.*",
            "_native.*",
            "_dtensor.*",
        ),
    ),
    Exclusion(
        "calls that act on the host",
        "a mark in a profile, a stream, an event",
        "It computes nothing, and the host decides when it happens.",
        "Profile, and choose streams, around the compiled function.",
        ("profiler.*", "streams.*"),
    ),
    Exclusion(
        "the gradient scaler's bookkeeping",
        "a check or change of the scale of gradients",
        "Between the check and the step the host reads whether to take the step, so it ends a graph.",
        "Leave GradScaler outside of the compiled function, or train in bfloat16, which needs no scale.",
        _aten("_amp_*"),
    ),
    Exclusion(
        "communication that one library schedules",
        "a call that FSDP makes around its buffers",
        "It writes to buffers that FSDP keeps between calls.",
        "Compile the modules that FSDP wraps.",
        ("fsdp.*",),
    ),
    Exclusion(
        "operators of higher order that are gone before a graph is captured",
        "a region that capture inlines",
        "Dynamo and AOTAutograd inline the region, or rewrite the call to one that is a member.",
        "Capture with torch.compile or torch.export.",
        _higher(
            "wrap wrap_activation_checkpoint wrap_with_autocast wrap_with_set_grad_enabled autograd_function_apply "
            "tag_activation_checkpoint custom_function_call dynamo_bypassing_wrapper flat_apply local_map_hop "
            "strict_mode foreach_map auto_functionalized triton_kernel_wrapper_mutation _export_tracepoint "
            "invoke_leaf_function run_dtensor_rng_op trace_wrapped register_hook"
        ),
    ),
    Exclusion(
        "operators of one compiler",
        "a region or operator for one compiler, or the code that one has compiled",
        "That compiler defines its meaning, or no graph is left to read.",
        "Hand the model to Keel before that compiler.",
        (
            *_higher(
                "aoti_call_delegate executorch_call_delegate inductor_compiled_code run_const_graph hints_wrapper "
                "invoke_quant invoke_quant_packed out_dtype control_deps flex_gemm"
            ),
            "prims.inductor_*",
            "prims._low_memory_max_pool_*",
            "prims.prepare_softmax_online.*",
            "prims.fma.*",
            "inductor.*",
            "inductor_prims.*",
            "_inductor_test.*",
            "onnx.*",
            "onnx_symbolic.*",
            "flex_lib.*",
        ),
    ),
    Exclusion(
        "older forms of collectives",
        "a collective of torch.distributed's first functional interface",
        "PyTorch keeps it to load old graphs.",
        "Use torch.distributed._functional_collectives.",
        ("c10d_functional.*", "_c10d_functional._wrap_tensor_autograd.*"),
    ),
    Exclusion(
        "memory that devices share",
        "symmetric memory",
        "Its tensors are windows into the memory of other devices, written by signals that no graph orders.",
        "Use the functional collectives.",
        ("symm_mem.*",),
    ),
    Exclusion(
        "operators newer than the opset",
        "an operator that PyTorch has since 2.14 or 2.15",
        "Opset 1.0 means the same on every PyTorch from 2.11 on. A newer operator that is not a composition of its "
        "members could not be specified there.",
        "Write it in older ones: a switch by torch.cond, and waiting for collectives one by one.",
        (
            *_aten("_philox_randint _philox_key_fold_in.Tensor _scaled_addmm"),
            *_higher("switch"),
            "c10d.gather_into_tensor_.*",
            "_c10d_functional.wait_tensors.*",
        ),
    ),
)


DECLARED = frozenset(name for op in MEMBERS.values() for name in op.overloads)


@cache
def exclusion_of(name: str) -> Exclusion | None:
    """The exclusion that an operator, by its full name, falls under; None for members and all that is not left out."""
    if name in DECLARED:
        return None
    return next((e for e in EXCLUSIONS for pattern in e.operators if fnmatchcase(name, pattern)), None)


_LAYOUTS = MappingProxyType({layout: e for e in EXCLUSIONS for layout in e.layouts})
_DTYPES = MappingProxyType({dtype: e for e in EXCLUSIONS for dtype in e.dtypes})


def exclusion_of_value(value: object) -> tuple[Exclusion, str] | None:
    """The exclusion that a tensor's layout or dtype falls under, and the words that name it; None for all others."""
    if not isinstance(value, torch.Tensor):
        return None
    if value.layout is not torch.strided:
        return _LAYOUTS[value.layout], f"of layout {value.layout}".replace("torch.", "")
    if (result := _DTYPES.get(value.dtype)) is not None:
        return result, f"of dtype {value.dtype}".replace("torch.", "")
    return None


def exclusion_of_call(op: Callable[..., Any], results: object) -> tuple[Exclusion, str] | None:
    """The exclusion for which no graph may hold a call: of a result, or of an operator whose results have no type."""
    for value in results if isinstance(results, list | tuple) else (results,):
        if (result := exclusion_of_value(value)) is not None:
            return result
    return _typeless(op)


@cache
def _typeless(op: Callable[..., Any]) -> tuple[Exclusion, str] | None:
    excluded = exclusion_of(name := operator_name(op))
    return (excluded, f"a call of {name}") if excluded is not None and excluded.typeless else None


def left_out(excluded: Exclusion, named: str, what: str, where: str | None = None) -> KeelError:
    """The error for a graph with something that is left out: ``named`` says what it is, ``what`` where it stands."""
    return KeelError(
        "out-of-opset",
        f"{what} is {named}, and opset {CURRENT} leaves out {excluded.name}.",
        {"because": excluded.reason},
        where,
        excluded.do,
    )
