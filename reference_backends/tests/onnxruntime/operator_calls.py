"""Calls of each operator that the backend takes."""

from __future__ import annotations

from typing import Any

import torch

INF, NAN = float("inf"), float("nan")
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Calls = dict[str, list[Arguments]]


def call(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


def arguments() -> Calls:
    """Calls by overload, without the namespace ``aten``."""
    return (
        _elementwise() | _reductions() | _indexing() | _views() | _moves() | _contractions() | _windows() | _created()
    )


def _numbers() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(2, 3, generator=generator) for _ in range(2))
    return x, y, torch.arange(6).view(2, 3), x > 0


def _elementwise() -> Calls:
    x, y, whole, flags = _numbers()
    special, byte = (
        torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.5]),
        torch.tensor([-128, -7, 0, 5, 127], dtype=torch.int8),
    )
    positive, ratio = x.abs() + 0.1, x.clamp(-0.9, 0.9)
    cases: Calls = {}
    for name in ["abs", "neg", "sign", "floor", "ceil", "trunc", "round"]:
        cases[f"{name}.default"] = [call(special), call(x * 3), call(byte)]
    names = "exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh sigmoid erf gelu relu leaky_relu"
    for name in names.split():
        cases[f"{name}.default"] = [call(x), call(x.double() if name == "exp" else x.bfloat16())]
    for name in ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"]:
        cases[f"{name}.default"] = [call(positive), call(positive.half()), call(positive.double())]
    for name in ["asin", "acos", "atanh"]:
        cases[f"{name}.default"] = [call(ratio)]
    pairs = [call(x, y), call(whole, whole.flip(0)), call(byte, byte.flip(0)), call(x, x)]
    numbers = [call(x, 2), call(whole, 3), call(x, -0.5)]
    for name in ("add", "sub", "mul", "ne", "eq", "lt", "le", "gt", "ge"):
        cases |= {f"{name}.Tensor": pairs, f"{name}.Scalar": numbers}
    cases["add.Tensor"] = [*pairs, call(x, y, alpha=2), call(flags, flags.flip(0))]
    cases["mul.Tensor"] = [*pairs, call(flags, flags.flip(0))]
    cases["eq.Scalar"] = [*numbers, call(flags, 257)]
    for name in ("remainder", "fmod"):
        cases[f"{name}.Tensor"] = [call(x * 9, y), call(byte, byte[:1] // 9), call(whole, whole.flip(0) - 7)]
        cases[f"{name}.Scalar"] = [call(x * 9, -2), call(byte, -3), call(whole, -1)]
    modes = [dict(rounding_mode=mode) for mode in ("floor", "trunc")]
    over = [(x * 9, y), (byte, torch.full_like(byte, -3)), (whole - 3, whole.flip(0) - 7)]
    cases["div.Tensor_mode"] = [*[call(*xs, **mode) for mode in modes for xs in over], call(x, y, rounding_mode=None)]
    cases["div.Scalar_mode"] = [call(a, -2, **mode) for mode in modes for a in (x * 9, byte, whole)]
    for name in ("and", "or", "xor"):
        both = [call(flags, flags.flip(0))]
        cases[f"logical_{name}.default"] = both
        cases[f"bitwise_{name}.Tensor"] = [*both, call(byte, byte.flip(0))]
        cases[f"bitwise_{name}.Scalar"] = [call(byte, 3), call(flags, True)]
    for name in ("left", "right"):
        by = [torch.tensor([-1, 0, 1, 7, 9], dtype=torch.int8), torch.tensor([1, 2, 3, 64, 0])]
        cases[f"bitwise_{name}_shift.Tensor"] = [call(byte, by[0]), call(by[1] - 40, by[1])]
        cases[f"bitwise_{name}_shift.Tensor_Scalar"] = [call(byte, 2), call(whole, 3)]
    for name in ("maximum", "minimum"):
        cases[f"{name}.default"] = [call(special, special.flip(0)), call(whole, whole.flip(0)), call(flags, ~flags)]
    return cases | {
        **{f"{name}.default": [call(special), call(whole)] for name in ("isnan", "isinf")},
        **{f"{name}_not.default": [call(flags)] for name in ("logical", "bitwise")},
        "bitwise_not.default": [call(flags), call(byte)],
        "acosh.default": [call(positive + 1)],
        "div.Tensor": [call(x, positive)],
        "div.Scalar": [call(x, 3)],
        "pow.Tensor_Scalar": [call(x, 2), call(positive, 0.7)],
        "pow.Tensor_Tensor": [call(positive, y)],
        "pow.Scalar": [call(3.0, x)],
        "copysign.Tensor": [call(special, special.flip(0))],
        "copysign.Scalar": [call(special, -1.0)],
        "where.self": [call(flags, x, y), call(special > 0, special, -special), call(flags, flags, ~flags)],
        "addcmul.default": [call(x, y, x, value=0.5), call(whole, whole, whole), call(x.half(), x.half(), x.half())],
        "_to_copy.default": [
            call(x * 9, dtype=torch.int64),
            call(whole, dtype=torch.bool),
            call(x, dtype=torch.bfloat16),
        ],
        "prims::convert_element_type.default": [call(whole, torch.float16)],
        "quantized_decomposed::dequantize_per_tensor.default": [call(byte, 0.1, 3, -128, 127, torch.int8)],
    }


def _reductions() -> Calls:
    x, _, whole, flags = _numbers()
    image, large = torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(1)), whole + (1 << 62) + 1
    special = torch.tensor([[NAN, INF, 0.0], [-0.0, 2.0, NAN], [3.0, 3.0, -INF]])
    cases: Calls = {}
    for name in ("sum", "mean"):
        other = "dim_IntList" if name == "sum" else "dim"
        cases[f"{name}.{other}"] = [call(x, [0]), call(image, [-1, 1], True), call(x.half(), [1], dtype=torch.float32)]
        cases[f"{name}.default"] = [call(image), call(x.bfloat16())]
    cases["sum.dim_IntList"] += [call(large, [0]), call(flags, [1]), call(x[:0], [0])]
    cases["prod.dim_int"] = [call(x, 1), call(large, 0, True), call(x[:0], 0)]
    cases["prod.default"] = [call(x), call(large)]
    for name in ("max", "min"):
        cases[f"a{name}.default"] = [call(special, [1]), call(whole, [0], True), call(flags, [1])]
        cases[f"arg{name}.default"] = [call(special, 1), call(special), call(whole, 0, True)]
        cases[f"{name}.dim"] = [call(special, 1), call(whole, 0, True)]
        cases[f"{name}.default"] = [call(special), call(large)]
    for name in ("any", "all"):
        cases[f"{name}.default"] = [call(flags), call(special), call(x[:0])]
        cases[f"{name}.dim"] = [call(flags, 1), call(whole, 0, True)]
        cases[f"{name}.dims"] = [call(flags, [0, 1])]
    return cases | {
        "cumsum.default": [call(x, 1), call(large, 0), call(x.bfloat16(), 1)],
        "cumprod.default": [call(x, 1), call(whole, 0)],
        "sort.default": [call(special, 1), call(whole, 0, True)],
        "sort.stable": [call(special.flatten(), stable=True, dim=0, descending=True), call(flags.int(), stable=True)],
        "topk.default": [call(special, 2), call(x.flatten(), 3, 0, False)],
    }


def _indexing() -> Calls:
    x, y, whole, flags = _numbers()
    image, at = torch.arange(240.0).view(2, 4, 6, 5), torch.tensor([[1, 0, 1], [0, 0, 1]])
    puts = [
        call(x, [at[0]], y[:1]),
        call(image, [None, at[:, :1], None, at[0]], torch.ones(1, 6)),
        call(image.int(), [None, at], torch.ones(5, dtype=torch.int32), True),
        call(x, [at[0], at[1]], torch.tensor(2.0), True),
    ]
    indexed = [
        call(x, [at]),
        call(flags, [at, whole % 3]),
        call(image, [at[:, :1], at[0]]),
        call(image, [None, at, at]),
    ]
    indexed += [call(image, [None, at[0], None, at[1]]), call(image.bfloat16(), [at[0].int(), None, at[1].int()])]
    return {
        "embedding.default": [call(x, at), call(x, at, 0)],
        "index_select.default": [call(x, 1, at[0])],
        "gather.default": [call(whole, 1, at), call(x, 0, at)],
        "scatter.src": [call(x, 1, at[:1, :2], y), call(flags, 0, at, ~flags)],
        "scatter.value": [call(x, 1, at[:, :2], 2.5), call(x.bfloat16(), 0, at, 1.5)],
        "scatter_add.default": [
            call(x, 1, at, y),
            call(whole.int(), 0, at, whole.int()),
            call(x.half(), 0, at, x.half()),
        ],
        "scatter_reduce.two": [
            *[call(x, 1, at, y, kind) for kind in ("sum", "prod")],
            *[call(whole, 1, at, whole.flip(0), kind) for kind in ("amax", "amin")],
        ],
        "index.Tensor": indexed,
        "_unsafe_index.Tensor": indexed,
        "index_put.default": puts,
        "_unsafe_index_put.default": puts,
        "nonzero_static.default": [call(whole - 2, size=4), call(flags, size=9, fill_value=7)],
    }


def _views() -> Calls:
    x, _, _, flags = _numbers()
    image, ones = torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(1)), torch.ones(3)
    return {
        **{f"{name}.default": [call(x, [3, 2]), call(flags, [6])] for name in ("view", "_unsafe_view", "reshape")},
        **{f"{name}.default": [call(x)] for name in ("alias", "detach", "lift_fresh", "lift_fresh_copy")},
        "unsqueeze.default": [call(x, -1)],
        "squeeze.default": [call(x[:1])],
        "squeeze.dim": [call(x[:1], 0)],
        "squeeze.dims": [call(x[:1, :, None], [0, 2])],
        "clone.default": [call(x), call(image.permute(0, 2, 3, 1), memory_format=torch.contiguous_format)],
        "expand.default": [call(x, [4, -1, 3]), call(torch.tensor(1.5).bfloat16(), [2])],
        "permute.default": [call(image, [0, -1, 1, 2])],
        "t.default": [call(x), call(ones)],
        "transpose.int": [call(image, 1, -1)],
        "slice.Tensor": [call(x, 1, 1), call(x, 0, 0, 1), call(x, 1, 0, 9, 2), call(x, -1, -2)],
        "select.int": [call(x, 1, -1), call(flags, 0, 1)],
        "split.Tensor": [call(image, 3, 2)],
        "split_with_sizes.default": [call(x, [1, 2], 1)],
        "unbind.int": [call(x), call(x, 1)],
        "diagonal.default": [call(image, 1, 2, -1), call(x, -1)],
        "unfold.default": [call(image, 2, 3, 2)],
        "view.dtype": [call(x, torch.int32), call(x.half(), torch.bfloat16)],
    }


def _moves() -> Calls:
    x, y, whole, flags = _numbers()
    image = torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(1))
    pads: Calls = {}
    for rank, pad in enumerate(([2, 1], [1, 2, 2, 0], [1, 0, 2, 1, 1, 1]), 1):
        for name in ("reflection", "replication"):
            operand = image[0] if rank < 3 else image
            pads[f"{name}_pad{rank}d.default"] = [call(operand, pad), call(operand.half(), pad)]
    return pads | {
        "repeat.default": [call(x, [2, 1, 3]), call(x.bfloat16(), [1, 2])],
        "cat.default": [call([x, y], 1), call([flags, flags]), call([torch.empty(0), x]), call([x, whole])],
        "stack.default": [call([x, y], 1), call([x, y], -1)],
        "flip.default": [call(image, [1, -1]), call(flags, [])],
        "roll.default": [call(x, [1, -2], [0, 1]), call(x, [2]), call(x, [7], [1])],
        "constant_pad_nd.default": [call(x, [1, 2], 0.5), call(whole, [-1, 1, 2, 0]), call(x.bfloat16(), [1, 1], NAN)],
        "slice_scatter.default": [call(x, y[:, :2], 1, 0, 3, 2), call(x, y[:1], 0, 1)],
        "tril.default": [call(image, 1), call(flags)],
        "triu.default": [call(image, -1), call(x.half())],
    }


def _contractions() -> Calls:
    generator = torch.Generator().manual_seed(2)
    x, matrix, image = (torch.randn(*s, generator=generator) for s in ((2, 3), (3, 4), (2, 4, 6, 5)))
    heads, byte = torch.randn(3, 2, 2, 5, 4, generator=generator), torch.arange(-120, 121, 10).to(torch.int8).view(5, 5)
    mask = torch.zeros(5, 5).masked_fill_(torch.ones(5, 5).triu_(1) > 0, -INF)
    mask[2] = -INF
    whole = torch.arange(12).view(3, 4) + (1 << 61)
    means, scales = torch.rand(3, 4, generator=generator), torch.rand(4, generator=generator) + 0.1
    return {
        "mm.default": [
            call(x, matrix),
            call(whole, whole.t()),
            call(x.half(), matrix.half()),
            call(x[:, :0], matrix[:0]),
        ],
        "bmm.default": [call(image[0], image[0].mT)],
        "addmm.default": [
            call(matrix[0], x, matrix),
            call(torch.randn(2, 4, generator=generator), x, matrix, beta=0.5, alpha=2),
            call(matrix[0] * NAN, x, matrix, beta=0),
        ],
        "_int_mm.default": [call(byte, byte)],
        "_softmax.default": [call(x, -1, False), call(x.bfloat16(), 0, False)],
        "_log_softmax.default": [call(x, 0, False)],
        "native_layer_norm.default": [
            call(x, [3], torch.ones(3), x[0], 1e-5),
            call(image, [6, 5], None, None, 1e-6),
        ],
        "_native_batch_norm_legit_no_training.default": [
            call(image, *means, scales, 0.1, 1e-5),
            call(image, None, None, means[0], scales, 0.1, 1e-5),
        ],
        "_scaled_dot_product_flash_attention_for_cpu.default": [
            call(*heads),
            call(*heads, scale=0.3),
            call(*heads, attn_mask=mask),
        ],
    }


def _windows() -> Calls:
    generator = torch.Generator().manual_seed(3)
    image, kernel = torch.randn(2, 4, 6, 5, generator=generator), torch.randn(6, 4, 3, 2, generator=generator)
    volume, hole = torch.randn(1, 2, 4, 5, 6, generator=generator), image.clone()
    hole[0, 0, 2, 3] = NAN
    single, pair = [1], [1, 1]
    pools = [call(image, [2]), call(image, [3, 2], [2, 1], [1, 0]), call(image, [2], [2], [1], True)]
    wide = [call(volume, [2]), call(volume, [3, 2, 2], [2, 1, 2], [1, 0, 1], True)]
    return {
        "convolution.default": [
            call(image, kernel, kernel[:, 0, 0, 0], [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
            call(image, kernel[:4, :1], None, pair, pair, pair, False, [0, 0], 4),
            call(image[0], kernel[:2, 0].repeat(1, 2, 1), None, single, [0], single, False, [0], 1),
            call(image, kernel.transpose(0, 1), None, [2, 2], [1, 0], pair, True, [1, 0], 1),
        ],
        "avg_pool2d.default": [
            *pools,
            call(image, [2], [2], [1], True, False),
            call(image, [3], [2], [1], False, False),
        ],
        "avg_pool3d.default": [*wide, call(volume[0], [2])],
        "max_pool2d_with_indices.default": [
            *pools[:2],
            call(image, [2], [2], [1], [1], True),
            call(hole, [3], [1], [1]),
            call(image[0], [2]),
        ],
        "max_pool3d_with_indices.default": [*wide[:1], call(volume, [2], [2], [1], [1], True)],
        "upsample_nearest1d.default": [call(image[0], [10])],
        "upsample_nearest2d.default": [call(image, [12, 15])],
        "upsample_nearest3d.default": [call(volume, [4, 10, 18])],
    }


def _created() -> Calls:
    x, *_, flags = _numbers()
    cases: Calls = {}
    for name in ("ones", "zeros"):
        cases[f"{name}.default"] = [call([2, 3]), call([2], dtype=torch.int64)]
        cases[f"new_{name}.default"] = [call(x, [4]), call(x, [], dtype=torch.bool)]
        cases[f"{name}_like.default"] = [call(x), call(flags)]
    return cases | {
        "full.default": [call([2, 3], 7), call([2], -INF), call([], True), call([2], 0.5, dtype=torch.bool)],
        "full_like.default": [call(x, 2.5, dtype=torch.bfloat16)],
        "scalar_tensor.default": [call(2.5, dtype=torch.float32)],
        "new_full.default": [call(x, [2], 3)],
        "arange.default": [call(5), call(70_000)],
        "arange.start": [call(2, 7)],
        "arange.start_step": [
            call(2, 7, 2),
            call(9, -140_000, -2, dtype=torch.int32),
            call(0, 1, 0.25, dtype=torch.float32),
        ],
        "eye.default": [call(3)],
        "eye.m": [call(2, 3, dtype=torch.int64)],
    }
