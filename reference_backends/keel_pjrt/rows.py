"""Which calls are taken: a row for each primitive of the operator set, or the reason why it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from keel import Refusal, TensorType
from keel.opset import OPSET, bind
from keel.plugin import Call

WIDE = frozenset({torch.float64, torch.complex128})
COMPLEX = frozenset({torch.complex64, torch.complex128, torch.complex32})
KNOWN = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool, torch.complex64, torch.complex128}
    | {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""The dtypes that JAX computes in."""
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """The limits of a primitive that is lowered: dtypes that it is not lowered in, and why; and what else a sentence
    of ``when`` refuses. That is a function of the call and of its arguments by parameter name.
    """

    without: frozenset[torch.dtype] = frozenset()
    why: str = ""
    when: Callable[[Call, Arguments], str | None] | None = None


def _unmasked(call: Call, args: Arguments) -> str | None:
    masks = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args["indices"])
    return "with masks, because the number of their true elements is data" if masks else None


def _row_major(call: Call, args: Arguments) -> str | None:
    return None if args["self"].is_contiguous else "of tensors that are not row-major, because arrays have no strides"


def _pivoted(call: Call, args: Arguments) -> str | None:
    return None if args["pivot"] else "without pivoting, because XLA always exchanges rows"


LOWERED = (
    "abs neg sign ceil floor trunc round reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin",
    "acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma bitwise_not isnan isinf",
    "frexp add sub mul div remainder fmod pow atan2 maximum minimum eq ne lt le gt ge bitwise_and bitwise_or",
    "bitwise_xor shift_left shift_right copysign nextafter gcd where fma i0 i0e i1 i1e erfcx ndtri zeta igamma igammac",
    "sum prod amax amin any argmax argmin max_with_index min_with_index reduce_xor",
    "cumsum cumprod cummax cummin logcumsumexp sort topk",
    "reshape permute expand squeeze unsqueeze slice select diagonal sliding_window bitcast alias as_strided",
    "cat flip pad copy_layout slice_scatter full scalar_tensor iota empty constant",
    "convert device_put view_as_real view_as_complex conj",
    "gather scatter scatter_add scatter_reduce index index_put searchsorted nonzero_static",
    "mm bmm int_mm fft_c2c fft_r2c fft_c2r convolution convolution_backward",
    "avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward max_pool2d_with_indices max_pool3d_with_indices",
    "lu_factor lu_unpack geqrf householder_product eigh eig svd triangular_solve",
)
IMPRECISE = Row(frozenset({torch.float64}), "XLA's approximation is less precise than the operator set allows")
LIMITS: Mapping[str, Row] = {
    **dict.fromkeys(["digamma", "erfc", "erfinv", "lgamma"], IMPRECISE),
    "abs": Row(COMPLEX, "XLA takes parts below the normal numbers for 0"),
    "as_strided": Row(when=_row_major),
    "fma": Row(WIDE | COMPLEX, "XLA promises no product of float64 that is not rounded before the sum"),
    "index": Row(when=_unmasked),
    "index_put": Row(when=_unmasked),
    "logcumsumexp": Row(COMPLEX, "JAX has it for real numbers only"),
    "lu_factor": Row(when=_pivoted),
}
ROWS: Mapping[str, Row] = {**dict.fromkeys(" ".join(LOWERED).split(), Row()), **LIMITS}
"""The primitives that are lowered, by member of the operator set."""
GENERATOR = "it draws from PyTorch's generator, whose state a program of XLA can neither read nor advance"
REASONS: Mapping[str, str] = {
    "uniform normal randint randperm gamma poisson binomial": GENERATOR,
    "rng_key_split rng_key_fold_in rng_uniform rng_normal": "Philox of XLA has other keys and counters than PyTorch's",
    "all_reduce all_gather_into_tensor reduce_scatter_tensor all_to_all_single broadcast wait_tensor isend irecv "
    "batch_p2p_ops": "it talks to other processes, and sharding is left out",
    "cond while_loop while_loop_stack_output scan associative_scan map_impl invoke_subgraph flex_attention "
    "flex_attention_backward run_with_rng_state run_and_save_rng_state": "it calls graphs of its own, which are not "
    "translated",
    "triton_kernel_wrapper_functional custom_call with_effects make_token sink_tokens": "it runs code that is not in "
    "the graph, or orders its effects",
    "assert_async assert_now assert_number assert_number_token constrain_range constrain_range_token assert_metadata "
    "linalg_check_errors": "it has to stop the program, which XLA cannot",
    "modified_bessel_k0 scaled_modified_bessel_k0 bessel_j0 bessel_y0 modified_bessel_k1 scaled_modified_bessel_k1 "
    "bessel_j1 bessel_y1 airy_ai chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v "
    "chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
    "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
    "laguerre_polynomial_l legendre_polynomial_p": "JAX has no function for it",
    "grouped_mm scaled_mm scaled_grouped_mm weight_int4_mm": "XLA has no product with such groups, scales or packing",
    "nonzero": "the number of its results is data, and XLA knows every size",
    "item": "its result is a number for the host",
    "cholesky": "XLA does not say which minor of a matrix is not positive definite",
    "ldl_factor ldl_solve": "XLA has no factorization of indefinite matrices",
    "matrix_exp": "JAX chooses the order of its approximation by the largest matrix of a batch",
}
"""Why primitives are refused."""
REFUSED: Mapping[str, str] = {name: reason for names, reason in REASONS.items() for name in names.split()}


def refuses(call: Call) -> Refusal | str | None:
    """Returns None if the call is lowered, else a sentence that says why not."""
    op = OPSET.get(call.op)
    if op is None:
        return f"pjrt has no {call.name}."
    if op.kind != "primitive":
        return f"pjrt takes {call.name} only as the primitives that it decomposes to."
    if op.name not in ROWS:
        return f"pjrt refuses {call.name}: {REFUSED[op.name]}."
    row, args = ROWS[op.name], bind(call)
    if args.get("generator") is not None:
        return f"pjrt refuses {call.name} with a generator: {GENERATOR}."
    dtypes = {t.dtype for t in tensors(call)}
    if foreign := dtypes - KNOWN:
        return f"pjrt refuses {call.name} on {_listed(foreign)}: JAX does not compute in it."
    if lost := dtypes & row.without:
        return f"pjrt refuses {call.name} on {_listed(lost)}: {row.why}."
    sentence = row.when(call, args) if row.when else None
    return f"pjrt refuses {call.name} {sentence}." if sentence else None


def tensors(call: Call) -> Iterator[TensorType]:
    """The types of operands and results."""
    yield from call.tensors
    yield from (each for each in call.out if isinstance(each, TensorType))


def _listed(dtypes: frozenset[torch.dtype] | set[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
