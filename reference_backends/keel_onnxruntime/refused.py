"""Primitives that the backend leaves to others, by the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from keel import Call, Rule
from keel.opset import MEMBERS

REASONS = {
    "ONNX has no such operator": """
        erfc erfinv lgamma digamma frexp atan2 nextafter gcd searchsorted cummax cummin logcumsumexp reduce_xor
        i0 i0e i1 i1e modified_bessel_k0 scaled_modified_bessel_k0 bessel_j0 bessel_y0 modified_bessel_k1
        scaled_modified_bessel_k1 bessel_j1 bessel_y1 airy_ai erfcx ndtri zeta igamma igammac
        chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w
        shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
        shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l
        legendre_polynomial_p""",
    "ONNX has no gradients of windows": "convolution_backward avg_pool2d_backward avg_pool3d_backward",
    "ONNX's random numbers are not those that torch.manual_seed gives": """
        uniform normal randint randperm gamma poisson binomial rng_key_split rng_key_fold_in rng_uniform rng_normal""",
    "ONNX Runtime has no complex numbers": "fft_c2c fft_r2c fft_c2r view_as_real view_as_complex conj",
    "ONNX neither factorizes matrices nor solves equations": """
        cholesky lu_factor lu_unpack ldl_factor geqrf householder_product eigh eig svd triangular_solve ldl_solve
        matrix_exp""",
    "ONNX has no messages between processes": """
        all_reduce all_gather_into_tensor reduce_scatter_tensor all_to_all_single broadcast wait_tensor isend irecv
        batch_p2p_ops""",
    "its operands are graphs, and a part's ONNX graph has no graphs in it": """
        cond while_loop while_loop_stack_output scan associative_scan map_impl invoke_subgraph run_with_rng_state
        run_and_save_rng_state flex_attention flex_attention_backward""",
    "it calls code that ONNX does not know": "triton_kernel_wrapper_functional custom_call with_effects",
    "ONNX has neither assertions nor effects": """
        make_token sink_tokens linalg_check_errors assert_async assert_now assert_number assert_number_token
        constrain_range constrain_range_token assert_metadata""",
    "data decide what it returns, and Keel allocates the results of a session before it runs": "nonzero item",
    "ONNX's values have no strides": "as_strided",
    "a session does not move tensors between devices": "device_put",
    "ONNX Runtime has no products of float8, of groups or of weights that PyTorch packed": """
        scaled_mm scaled_grouped_mm grouped_mm weight_int4_mm""",
}
"""The primitives without a row, by their names in the operator set."""


def refused() -> dict[str, str]:
    """The reason of each primitive that is refused."""
    return {name: reason for reason, names in REASONS.items() for name in names.split()}


def refusals() -> Iterator[Rule]:
    """Rows that take no call, and say why."""
    for name, reason in refused().items():
        yield Rule(ops=MEMBERS[name].overloads, when=_because(reason))


def _because(reason: str) -> Callable[[Call], str]:
    return lambda call: f"onnxruntime has no {call.name}: {reason}."
