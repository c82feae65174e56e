"""Members that no single call tries, and why."""
from __future__ import annotations

from collections.abc import Mapping

from keel.opset import Op

EXEMPT: Mapping[str, str] = {
    "collectives": "A collective needs processes that take part in it: programs over a process group try it.",
    "control flow": "Its arguments are graphs, which no single call of an overload can be given: programs try it.",
    "opaque": "No backend is asked for an opaque operator.",
}
"""Families, and kinds of members, that no case of a single call tries, and why."""
_CUDA = "PyTorch has no kernel of it for a CPU, where it is called to know what is right."
_CUDA_ONCE = f"Before 2.14, {_CUDA}"
"""Cases are of what every PyTorch that is supported can be held to."""
_NO_RESULT = "It has no result that a call could be judged by"
_TOKEN = f"{_NO_RESULT}: the form of it that gives a token, of which the same holds, is tried."
MEMBERS: Mapping[str, str] = {
    **dict.fromkeys((
        "rms_norm_backward", "weight_int4_mm", "varlen_attention", "varlen_attention_backward", "masked_scale",
        "batch_norm_stats", "batch_norm_apply", "batch_norm_backward_sums",
        "batch_norm_backward_apply"), _CUDA),
    **dict.fromkeys(("rng_key_split", "rng_key_fold_in", "rng_uniform", "rng_normal", "scaled_grouped_mm"),
                    _CUDA_ONCE),
    "assert_now": f"{_NO_RESULT}: programs of assertions on values try it.",
    "assert_number": _TOKEN, "constrain_range": _TOKEN,
    "assert_metadata": f"{_NO_RESULT}, and PyTorch checks it while a program is traced, before a backend has it.",
    "flex_attention": "One of its arguments is a graph, which no single call of an overload can be given: programs "
                      "try it.",
    "flex_attention_backward": "PyTorch refuses gradients of flex_attention on a CPU.",
}
"""Members that none tries, and why."""


def exempt(op: Op) -> str | None:
    """Why no case of a single call tries a member; None if some do."""
    return MEMBERS.get(op.name) or EXEMPT.get(op.family) or EXEMPT.get(op.kind)
