"""Attention: causal, masks that hide all of a row, fewer heads of keys, scales, odd lengths, one query, one key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, Levels
from ..values import SeededValues
from .call_templates import FLOATS, CallTemplate, DerivedArg, TensorArg, domain, usual, when

aten = torch.ops.aten
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"
SIZES: Mapping[str, tuple[int, int, int, int, int]] = {
    "7q9k": (2, 3, 7, 9, 8),
    "8q8k": (1, 2, 8, 8, 16),
    "1q1k": (1, 1, 1, 1, 4),
    "1q33k": (2, 2, 1, 33, 8),
    "33q33k": (1, 2, 33, 33, 16),
    "17q5k": (1, 3, 17, 5, 7),
    "65q129k": (1, 1, 65, 129, 32),
    "16q16k": (2, 4, 16, 16, 64),
    "257q300k": (1, 4, 257, 300, 64),
}
"""Batch, heads, queries, keys, elements of a head."""
MANY = "257q300k"
"""The sizes with more than 65,536 elements."""
MASKS = ("none", "causal", "additive", "hidden_row", "broadcast", "by_sample")
SCALES: Mapping[str, float | None] = {"usual": None, "1": 1.0, "0.05": 0.05}


def _mask(kind: str) -> Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]:
    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = torch.Size(shape).numel()
        x = draw.uniform(n, -2.0, 2.0).reshape(shape)
        x = torch.where(draw.integers(n, 0, 4).reshape(shape) == 0, float("-inf"), x)
        x[..., 0] = 0.0  # each query sees a key
        if kind == "hidden_row":
            x[..., shape[-2] // 2, :] = float("-inf")
        return x.to(dtype)

    return drawn


def _setting(levels: Levels) -> tuple[tuple[TensorArg, TensorArg, TensorArg], bool, TensorArg | None]:
    b, h, q, k, d = SIZES[levels["size"]]
    kind = levels["mask"]
    causal = kind == "causal"
    mask = None
    if kind not in ("none", "causal"):
        sizes = {"broadcast": (1, 1, q, k), "by_sample": (b, 1, q, k)}.get(kind, (b, h, q, k))
        mask = TensorArg(sizes, draw=_mask(kind), lies="none")
    tensors = (
        TensorArg((b, h, q, d), -2, 2, lies="dense"),
        TensorArg((b, h, k, d), -2, 2, lies="dense"),
        TensorArg((b, h, k, d), -2, 2, lies="dense"),
    )
    return tensors, causal, mask


def _sdpa(levels: Levels) -> CallTemplate:
    tensors, causal, mask = _setting(levels)
    return CallTemplate(
        f"{FLASH}.default", (*tensors, 0.0, causal), {"attn_mask": mask, "scale": SCALES[levels["scale"]]}
    )


def _sdpa_back(levels: Levels) -> CallTemplate:
    tensors, causal, mask = _setting(levels)
    scale = SCALES[levels["scale"]]

    def forward(which: int) -> DerivedArg:
        def made(drawn: Any, dtype: torch.dtype) -> Any:
            attn_mask = drawn[4] if mask is not None else None
            return aten._scaled_dot_product_flash_attention_for_cpu.default(
                *drawn[1:4], 0.0, causal, attn_mask=attn_mask, scale=scale
            )[which]

        return DerivedArg(made)

    b, h, q, _, d = SIZES[levels["size"]]
    return CallTemplate(
        f"{FLASH}_backward.default",
        (TensorArg((b, h, q, d), -2, 2, lies="dense"), *tensors, forward(0), forward(1), 0.0, causal),
        {"attn_mask": mask, "scale": scale},
    )


# -- transformer layers -----------------------------------------------------------------------------------------------


def _flags(share: float, rows: bool) -> Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]:
    """True where nothing is to be seen; of ``rows`` one is hidden as a whole."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        hidden = draw.uniform(torch.Size(shape).numel()).reshape(shape) < share
        hidden[..., 0] = False
        if rows and hidden.dim() > 1:
            hidden[..., 0, :] = True
        return hidden

    return drawn


def _masked_softmax(levels: Levels) -> CallTemplate:
    b, h, q, k = map(int, levels["size"].split("x"))
    shape, which = {
        "queries_keys": ((q, k), 0),
        "batch_keys": ((b, k), 1),
        "own": ((b, h, q, k), 2),
        "hidden_row": ((b, h, q, k), 2),
    }[levels["mask"]]
    mask = TensorArg(shape, dtype=torch.bool, draw=_flags(0.4, levels["mask"] == "hidden_row"), lies="none")
    return CallTemplate("aten._masked_softmax.default", (TensorArg((b, h, q, k), lies="none"), mask, 3, which))


def _masked_softmax_back(levels: Levels) -> CallTemplate:
    shape = tuple(map(int, levels["size"].split("x")))
    mask = TensorArg(shape, dtype=torch.bool, draw=_flags(0.4, False), lies="none")
    result = DerivedArg(
        lambda drawn, dtype: drawn[0].double().mul(3).sin().masked_fill(drawn[-1], float("-inf")).softmax(-1).to(dtype)
    )
    return CallTemplate(
        "aten._masked_softmax_backward.default", (TensorArg(shape, -2, 2, lies="none"), result, mask, 3)
    )


def _split(levels: Levels) -> CallTemplate:
    b, length, width, heads = WIDTHS[levels["size"]]
    return CallTemplate(
        "aten._transform_bias_rescale_qkv.default",
        (TensorArg((b, length, 3 * width), lies="none"), TensorArg((3 * width,), lies="none"), heads),
    )


WIDTHS: Mapping[str, tuple[int, int, int, int]] = {
    "2x5x16": (2, 5, 16, 4),
    "1x1x8": (1, 1, 8, 1),
    "3x9x24": (3, 9, 24, 3),
    "1x17x32": (1, 17, 32, 8),
    "2x33x6": (2, 33, 6, 2),
    "5x8x64": (5, 8, 64, 4),
}
"""Batch, length, width, heads."""


def _heads_mask(levels: Levels, b: int, length: int) -> tuple[TensorArg | None, int | None]:
    match levels["mask"]:
        case "queries_keys":
            return TensorArg((length, length), dtype=torch.bool, draw=_flags(0.3, False), lies="none"), 0
        case "batch_keys":
            return TensorArg((b, length), dtype=torch.bool, draw=_flags(0.3, False), lies="none"), 1
    return None, None


def _multi_head(levels: Levels) -> CallTemplate:
    b, length, width, heads = WIDTHS[levels["size"]]
    mask, kind = _heads_mask(levels, b, length)
    x = TensorArg((b, length, width), -1, 1, lies="none")
    weighed = levels["weights"] != "none"
    tensors = (
        (x, x, x)
        if levels["source"] == "cross"
        else (x, DerivedArg(lambda drawn, dtype: drawn[0]), DerivedArg(lambda drawn, dtype: drawn[0]))
    )
    return CallTemplate(
        "aten._native_multi_head_attention.default",
        (
            *tensors,
            width,
            heads,
            TensorArg((3 * width, width), -0.5, 0.5, lies="none"),
            TensorArg((3 * width,), -0.5, 0.5, lies="none"),
            TensorArg((width, width), -0.5, 0.5, lies="none"),
            TensorArg((width,), -0.5, 0.5, lies="none"),
            mask,
            weighed,
            levels["weights"] == "averaged",
            kind,
        ),
    )


def _encoder(levels: Levels) -> CallTemplate:
    b, length, width, heads = WIDTHS[levels["size"]]
    mask, kind = _heads_mask(levels, b, length)

    def arg(*shape: int) -> TensorArg:
        return TensorArg(shape, -0.5, 0.5, lies="none")

    return CallTemplate(
        "aten._transformer_encoder_layer_fwd.default",
        (
            arg(b, length, width),
            width,
            heads,
            arg(3 * width, width),
            arg(3 * width),
            arg(width, width),
            arg(width),
            levels["activation"] == "gelu",
            levels["order"] == "first",
            1e-5,
            TensorArg((width,), 0.5, 1.5, lies="none"),
            arg(width),
            TensorArg((width,), 0.5, 1.5, lies="none"),
            arg(width),
            arg(2 * width, width),
            arg(2 * width),
            arg(width, 2 * width),
            arg(width),
            mask,
            kind,
        ),
    )


# -- their domains ----------------------------------------------------------------------------------------------------

_FACTORS = {"size": usual(SIZES, MANY), "mask": MASKS, "scale": tuple(SCALES)}
_LAY = ("contiguous", "offset", "rows_apart")
"""Where elements of a head are not adjacent, eager PyTorch's kernel reads others."""
_KINDS = ("random", "duplicates")
_TELLING = (
    {"dtype": "f32", "size": "7q9k", "mask": "hidden_row", "scale": "usual", "values": "random"},
    {"dtype": "f32", "size": "33q33k", "mask": "causal", "scale": "0.05", "values": "random", "layout": "rows_apart"},
    {"dtype": "bf16", "size": "1q33k", "mask": "broadcast", "values": "random"},
    {"dtype": "f32", "size": "65q129k", "mask": "none", "values": "duplicates"},
)
_HEADS = "Eager PyTorch's processor kernel takes as many heads of keys as of queries; models try fewer."
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare(
    "sdpa",
    lambda op: domain(
        op,
        _FACTORS,
        _sdpa,
        kinds=_KINDS,
        lay=_LAY,
        priority=_TELLING,
        many={"size": MANY, "mask": "none"},
        covers={
            "C1": lambda levels: True,
            "C2": lambda levels: True,
            "C3": when(mask="causal"),
            "C4": when(mask="hidden_row"),
        },
        untested={"C5": _HEADS},
    ),
)
declare(
    "sdpa_backward",
    lambda op: domain(
        op,
        _FACTORS,
        _sdpa_back,
        kinds=_KINDS,
        lay=_LAY,
        priority=_TELLING,
        many={"size": MANY, "mask": "none"},
        untested={"C2": "Eager PyTorch's processor kernel gives no gradient of a mask."},
    ),
)
declare(
    "masked_softmax",
    lambda op: domain(
        op,
        {
            "size": ("2x3x5x5", "1x1x1x1", "2x2x33x33", "3x1x9x9"),
            "mask": ("queries_keys", "batch_keys", "own", "hidden_row"),
        },
        _masked_softmax,
        dtypes=FLOATS,
        kinds=(*_KINDS, "exact"),
        covers={"C1": lambda levels: True, "C3": when(mask="hidden_row")},
    ),
)
declare(
    "masked_softmax_backward",
    lambda op: domain(
        op,
        {"size": ("2x3x4x5", "1x1x1x1", "2x2x8x33", "3x1x7x9", "2x1x17x129", "1x1x3x1025", "4x2x2x7")},
        _masked_softmax_back,
        kinds=(*_KINDS, "cancel", "exact"),
        why_few="It has no attributes.",
    ),
)
declare(
    "split_queries_keys_values",
    lambda op: domain(
        op, {"size": tuple(WIDTHS)}, _split, kinds=(*_KINDS, "nonfinite", "exact"), why_few="It has no attributes."
    ),
)
declare(
    "multi_head_attention",
    lambda op: domain(
        op,
        {
            "size": tuple(WIDTHS),
            "mask": ("none", "queries_keys", "batch_keys"),
            "source": ("self", "cross"),
            "weights": ("averaged", "each", "none"),
        },
        _multi_head,
        dtypes=FLOATS[:2],
        kinds=_KINDS,
        covers={"C3": when(mask=("queries_keys", "batch_keys")), "C4": lambda levels: True},
    ),
)
declare(
    "transformer_encoder_layer",
    lambda op: domain(
        op,
        {
            "size": tuple(WIDTHS),
            "mask": ("none", "queries_keys", "batch_keys"),
            "activation": ("relu", "gelu"),
            "order": ("last", "first"),
        },
        _encoder,
        dtypes=FLOATS[:2],
        kinds=_KINDS,
        covers={"C2": when(mask=("queries_keys", "batch_keys"))},
    ),
)
