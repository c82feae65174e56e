"""The programs: special values first, then the shapes and layouts at which kernels differ from each other."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

INF, NAN = float("inf"), float("nan")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 3e38, -3e38, INF, -INF, NAN)


@dataclass(frozen=True)
class Case:
    """``program(*arguments())``; ``gradients`` says whether those of the floating arguments are judged too."""

    name: str
    program: Callable[..., Any]
    arguments: Callable[[], tuple[Tensor, ...]]
    gradients: bool = False


def normal(*shape: int) -> Tensor:
    return torch.randn(shape)


def special() -> tuple[Tensor]:
    return (torch.tensor(SPECIAL),)


def pairs() -> tuple[Tensor, Tensor]:
    values = torch.tensor(SPECIAL)
    return values[:, None], values[None, :]


def positive(*shape: int) -> Tensor:
    return torch.rand(shape) + 0.1


def _unary() -> list[Case]:
    ops: dict[str, Callable[[Tensor], Tensor]] = {
        "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil,
        "round": torch.round, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
        "reciprocal": torch.reciprocal, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "erf": torch.erf,
        "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": F.gelu, "silu": F.silu, "isnan": torch.isnan,
    }
    cases = [Case(f"{name}/special", op, special) for name, op in ops.items() if name not in ("sin", "cos")]
    cases += [Case(f"{name}/sizes", lambda a, b, op=op: (op(a), op(b)), lambda: (normal(17), normal(3, 65)))
              for name, op in ops.items()]
    return cases


def _binary() -> list[Case]:
    ops: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
        "minimum": torch.minimum, "lt": torch.lt, "eq": torch.eq, "atan2": torch.atan2,
    }
    cases = [Case(f"{name}/special", op, pairs) for name, op in ops.items()]
    cases += [Case(f"{name}/broadcast", op, lambda: (normal(4, 1, 33), normal(5, 1))) for name, op in ops.items()]
    return [*cases, Case("remainder/signs", torch.remainder, lambda: (torch.arange(-6, 6), torch.tensor([4]))),
            Case("where", torch.where, lambda: (normal(9, 7) > 0, normal(9, 7), normal(7))),
            Case("mixed-dtypes", lambda a, i, b: a * i + b, lambda: (normal(8), torch.arange(8), normal(8).bfloat16()))]


def _reductions() -> list[Case]:
    def rows() -> tuple[Tensor]:
        return (normal(7, 129),)

    def ties() -> tuple[Tensor]:
        return (torch.tensor([[1.0, 3.0, 3.0], [NAN, 2.0, NAN], [-INF, -INF, -INF]]),)

    return [
        Case("sum/rows", lambda x: x.sum(1), rows), Case("sum/columns", lambda x: x.sum(0), rows),
        Case("sum/all", lambda x: x.sum(), lambda: (normal(65, 1025),)),
        Case("sum/none", lambda x: x.sum(0), lambda: (normal(0, 4),)),
        Case("mean/middle", lambda x: x.mean(1, keepdim=True), lambda: (normal(3, 33, 5),)),
        Case("amax/special", lambda x: x.amax(1), ties), Case("argmax/ties", lambda x: x.argmax(1), ties),
        Case("max-with-index", lambda x: x.max(1), ties), Case("prod", lambda x: x.prod(1), lambda: (positive(3, 9),)),
        Case("any", lambda x: (x > 2).any(1), rows), Case("cumsum", lambda x: x.cumsum(1), rows),
        Case("var-far-from-zero", lambda x: x.var(1), lambda: (normal(3, 513) * 1e-2 + 1e2,)),
    ]


def _fused() -> list[Case]:
    return [
        Case("softmax", lambda x: F.softmax(x, -1), lambda: (normal(5, 130) * 10,), True),
        Case("softmax/masked", lambda x: F.softmax(x.masked_fill(x < 0, -INF), -1), lambda: (normal(5, 33) + 1,)),
        Case("log-softmax", lambda x: F.log_softmax(x, 0), lambda: (normal(33, 5),), True),
        Case("layer-norm", lambda x, w, b: F.layer_norm(x, (65,), w, b),
             lambda: (normal(4, 3, 65), normal(65), normal(65)), True),
        Case("cross-entropy", lambda x, t: F.cross_entropy(x, t),
             lambda: (normal(9, 33), torch.tensor([1, 2, 3, -100, 5, 6, 7, 32, 0])), True),
        Case("batch-norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
             lambda: (normal(4, 6, 5, 5), normal(6), normal(6)), True),
        Case("mlp", lambda x, w, v: F.gelu(x @ w) @ v, lambda: (normal(6, 16), normal(16, 32), normal(32, 8)), True),
        Case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
             lambda: (normal(2, 3, 9, 16), normal(2, 3, 9, 16), normal(2, 3, 9, 16)), True),
        Case("convolution", lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)),
             lambda: (normal(2, 3, 9, 9), normal(4, 3, 3, 3), normal(4)), True),
        Case("max-pool", lambda x: F.max_pool2d(x, 3, 2, 1), lambda: (normal(2, 3, 9, 9),), True),
        Case("two-outputs", lambda x: (x.exp().sum(1), x + 1), lambda: (normal(5, 17),)),
    ]


def _layouts() -> list[Case]:
    return [
        Case("transposed", lambda x: x.t() + 1, lambda: (normal(5, 33),)),
        Case("expanded", lambda x: x.expand(4, 9) * 2, lambda: (normal(1, 9),)),
        Case("offset-and-gaps", lambda x: x * 2, lambda: (normal(6, 40)[1::2, 3:35],)),
        Case("channels-last", lambda x: x * x.mean((2, 3), keepdim=True),
             lambda: (normal(2, 8, 5, 5).to(memory_format=torch.channels_last),)),
        Case("reshape", lambda x: x.permute(0, 2, 1).reshape(6, 35).exp(), lambda: (normal(6, 5, 7),)),
        Case("cat", lambda a, b: torch.cat([a, b * 2], 1), lambda: (normal(3, 5), normal(3, 4))),
        Case("pad", lambda x: F.pad(x, (1, 2), value=0.5), lambda: (normal(3, 5),)),
        Case("slices", lambda x: x[:, 1:-1:2] + x[:, :1], lambda: (normal(3, 9),)),
        Case("gather", lambda x, i: x.gather(1, i), lambda: (normal(3, 9), torch.randint(0, 9, (3, 4)))),
        Case("embedding", lambda w, i: F.embedding(i, w), lambda: (normal(11, 6), torch.randint(0, 11, (2, 5))), True),
        Case("empty", lambda x: x * 2 + 1, lambda: (normal(0, 3),)),
        Case("scalar", lambda x: x * 2 + 1, lambda: (torch.tensor(1.5),)),
        Case("casts", lambda x: (x.to(torch.int32), x.to(torch.bfloat16), x.bool()), lambda: (normal(33) * 10,)),
    ]


def cases() -> tuple[Case, ...]:
    """Every case; names are unique."""
    return (*_unary(), *_binary(), *_reductions(), *_fused(), *_layouts())
