"""What is another operator in other words gives what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # which registers quantized_decomposed

from keel.spec import decomposition_of

from .decomposed import holds

aten = torch.ops.aten


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


CASES: dict[str, Any] = {
    "add_relu": lambda: holds(aten._add_relu.Tensor, x(3, 4), x(4), alpha=2),
    "add_relu of integers": lambda: holds(aten._add_relu.Tensor, *torch.randint(-9, 9, (2, 3, 4)), alpha=1.7),
    "add_relu number": lambda: holds(aten._add_relu.Scalar, x(3, 4), 0.5),
    "aminmax": lambda: holds(aten._aminmax.default, x(3, 4)),
    "aminmax along": lambda: holds(aten._aminmax.dim, x(3, 4), 1, True),
    "all": lambda: holds(aten._is_all_true.default, x(3) > 9),
    "any": lambda: holds(aten._is_any_true.default, x(0) > 9),
    "stack": lambda: holds(aten._stack.default, [x(3, 4), x(3, 4)], 1),
    "logcumsumexp": lambda: holds(aten._logcumsumexp.default, x(3, 4), 1),
    "index_put": lambda: holds(aten._index_put_impl.default, x(5, 2), [torch.tensor([1, 1])], x(2, 2), True),
    "convolution": lambda: holds(
        aten._convolution.default,
        x(2, 3, 6, 6),
        x(4, 3, 3, 3),
        x(4),
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
        False,
        False,
        True,
        True,
    ),
    "convolution backward": lambda: holds(
        aten._slow_conv2d_backward.output_mask,
        x(2, 4, 4, 4),
        x(2, 3, 6, 6),
        x(4, 3, 3, 3),
        [3, 3],
        [1, 1],
        [0, 0],
        [True, True, True],
    ),
    "combination": lambda: holds(aten._compute_linear_combination.default, x(3, 2, 5), x(4, 3)),
    "combination of bools": lambda: holds(aten._compute_linear_combination.default, x(3, 2, 5) > 1, x(4, 3) > 0),
    "conj": lambda: holds(aten._conj_copy.default, x(3, dtype=torch.complex64)),
    "neg": lambda: holds(aten._neg_view_copy.default, x(3)),
    "as real": lambda: holds(aten.view_as_real_copy.default, x(3, dtype=torch.complex64)),
    "as complex": lambda: holds(aten.view_as_complex_copy.default, x(3, 2)),
    "alias": lambda: holds(aten._reshape_alias_copy.default, x(3, 4), [4, 3], [3, 1]),
    "convert": lambda: holds(torch.ops.quantized_decomposed.convert_element_type.no_fuse, x(3), torch.float16),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_gives_what_eager_gives(case: str) -> None:
    torch.manual_seed(0)
    CASES[case]()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masked_scale_is_the_product(dtype: torch.dtype) -> None:
    value, mask = torch.randn(4, 5).to(dtype), torch.rand(4, 5) > 0.5
    got = decomposition_of(aten._masked_scale.default)(value, mask.to(torch.uint8), 1.25)
    assert torch.equal(got, (value.double() * mask * 1.25).to(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_gradients_of_glu(dim: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    value, change = x(4, 6, dtype=dtype), x(4, 6, dtype=dtype)
    out = aten.glu(value, dim)
    holds(aten.glu_jvp.default, out, value, change, dim)
    grad, dgrad = x(*out.shape, dtype=dtype), x(*out.shape, dtype=dtype)
    holds(aten.glu_backward_jvp.default, aten.glu_backward(grad, value, dim), grad, value, dgrad, change, dim)


def test_prims_are_written_out() -> None:
    from keel.closure import dynamo_backend, ending

    ends = []

    def watch(captured: Any) -> Any:
        ends.append(ending(captured))
        return ends[-1]

    def program(t: torch.Tensor) -> torch.Tensor:
        return torch.ops.prims.sin(torch.ops.prims.maximum(t, t * 0.5))

    torch.compiler.reset()
    got = torch.compile(program, backend=dynamo_backend(watch))(x(4))
    assert got.shape == (4,) and not any(end.outside for end in ends) and ends
