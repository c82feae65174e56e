"""The kernels of these tests, beside those that all backends share, and what each must compute, said with PyTorch.

References take the inputs by name, flat, in float64 where they are floats, and return what the outputs must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from keel.loops import Kernel

from .. import kernels
from ..kernels import Values

TEXTS = {
    **kernels.TEXTS,
    "broadcast": """
kernel broadcast(in0: f32[N*M], in1: f32[M], in2: f32[N]) -> (out0: f32[N*M]):
  parallel i0 < N, i1 < M:
    %0 = load in0[M*i0 + i1]
    %1 = load in1[i1]
    %2 = load in2[i0]
    %3 = tanh %2
    %4 = mul %1 %3
    %5 = add %0 %4
    store out0[M*i0 + i1] %5
""",
    "cast": """
kernel cast(in0: bf16[N*M], in1: f16[N*M]) -> (out0: bf16[N*M], out1: f16[N*M]):
  parallel i0 < N*M:
    %0 = load in0[i0]
    %1 = cast %0 : f32
    %2 = load in1[i0]
    %3 = cast %2 : f32
    %4 = add %1 %3
    %5 = cast %4 : bf16
    store out0[i0] %5
    %6 = cast %4 : f16
    store out1[i0] %6
""",
    "welford": """
kernel welford(in0: f32[N*M]) -> (out0: f32[N], out1: f32[N]):
  %0 = const 0.0 : f32
  %1 = const 1.0 : f32
  parallel i0 < N:
    reduce j0 < M:
      %2 = load in0[M*i0 + j0]
      %3, %4, %5 = reduce welford %2 %0 %1
    store out0[i0] %3
    store out1[i0] %4
""",
    "total": """
kernel total(in0: f32[N*M]) -> (out0: f32[1], out1: f32[1], out2: f32[N*M]):
  reduce i0 < N, i1 < M:
    %0 = load in0[M*i0 + i1]
    %1 = reduce sum %0
    %2 = reduce max %0
  store out0[0] %1
  store out1[0] %2
  parallel i0 < N*M:
    %3 = load in0[i0]
    %4 = sub %3 %2
    store out2[i0] %4
""",
    "row_losses": """
kernel row_losses(in0: f32[N*M]) -> (out0: f32[1], out1: f64[1], out2: f32[1], out3: i64[1]):
  reduce i0 < N:
    reduce r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = reduce max %0
    reduce r0 < M:
      %2 = load in0[M*i0 + r0]
      %3 = sub %2 %1
      %4 = exp %3
      %5 = reduce sum %4
    %6 = log %5
    %7 = add %6 %1
    %8 = cast %1 : f64
    %9 = position i0
    %10 = reduce sum %7
    %11 = reduce sum %8
    %12, %13 = reduce argmax %7 %9
  store out0[0] %10
  store out1[0] %11
  store out2[0] %12
  store out3[0] %13
""",
    "column_softmax": """
kernel column_softmax(in0: f32[N*M]) -> (out0: f32[N*M]):
  parallel i0 < M:
    reduce j0 < N:
      %0 = load in0[M*j0 + i0]
      %1 = reduce max %0
    reduce j0 < N:
      %2 = load in0[M*j0 + i0]
      %3 = sub %2 %1
      %4 = exp %3
      %5 = reduce sum %4
    %6 = reciprocal %5
    parallel j0 < N:
      %7 = load in0[M*j0 + i0]
      %8 = sub %7 %1
      %9 = exp %8
      %10 = mul %9 %6
      store out0[M*j0 + i0] %10
""",
    "cumsum": """
kernel cumsum(in0: f32[N*M]) -> (out0: f32[N*M], out1: f32[N*M]):
  parallel i0 < N:
    scan j0 < M:
      %0 = load in0[M*i0 + j0]
      %1 = scan sum %0
      store out0[M*i0 + j0] %1
  parallel i0 < M:
    scan j0 < N:
      %2 = load in0[M*j0 + i0]
      %3 = scan max %2
      store out1[M*j0 + i0] %3
""",
    "transposed": """
kernel transposed(in0: f32[N*M], in1: f32[N]) -> (out0: f32[N*M]):
  parallel i0 < M, i1 < N:
    %0 = load in0[M*i1 + i0]
    %1 = load in1[i1]
    %2 = mul %0 %1
    store out0[N*i0 + i1] %2
""",
    "window": """
kernel window(in0: f32[N*M]) -> (out0: f32[N*M]):
  %0 = const 0 : i64
  %1 = position N
  %2 = position M
  parallel i0 < N, i1 < M:
    reduce j0 < 3, j1 < 3:
      %3 = position i0 + j0 - 1
      %4 = position i1 + j1 - 1
      %5 = ge %3 %0
      %6 = lt %3 %1
      %7 = ge %4 %0
      %8 = lt %4 %2
      %9 = and %5 %6
      %10 = and %7 %8
      %11 = and %9 %10
      %12 = load in0[M*i0 + M*j0 + i1 + j1 - M - 1] if %11
      %13 = reduce sum %12
    store out0[M*i0 + i1] %13
""",
    "masked": """
kernel masked(in0: f32[N*M]) -> (out0: f32[N*M]):
  parallel i0 < N:
    %0 = position i0
    reduce j0 < M:
      %1 = position j0
      %2 = le %1 %0
      %3 = load in0[M*i0 + j0] if %2
      %4 = reduce sum %3
    parallel j0 < M:
      %5 = position j0
      %6 = le %5 %0
      store out0[M*i0 + j0] %4 if %6
""",
    "channel_softmax": """
kernel channel_softmax(in0: f32[K*N*M]) -> (out0: f32[K*N*M]):
  parallel i0 < N:
    reduce j0 < K, j1 < M:
      %0 = load in0[M*N*j0 + M*i0 + j1]
      %1 = reduce max %0
    reduce j0 < K, j1 < M:
      %2 = load in0[M*N*j0 + M*i0 + j1]
      %3 = sub %2 %1
      %4 = exp %3
      %5 = reduce sum %4
    %6 = reciprocal %5
    parallel j1 < M, j0 < K:
      %7 = load in0[M*N*j0 + M*i0 + j1]
      %8 = sub %7 %1
      %9 = exp %8
      %10 = mul %9 %6
      store out0[M*N*j0 + M*i0 + j1] %10
""",
    "chosen": """
kernel chosen(in0: f32[16*N*M], in1: f32[16*N*M]) -> (out0: f32[16*N*M], out1: f32[N*M]):
  %0 = const 2 : i64
  parallel i0 < N*M:
    %1 = position i0
    %2 = lt %1 %0
    %3 = not %2
    reduce j0 < 4, j1 < 4:
      %4 = load in0[4*N*M*j0 + 4*i0 + j1] if %2
      %5 = load in1[4*N*M*j0 + 4*i0 + j1] if %3
      %6 = where %2 %4 %5
      %7 = neg %6
      %8 = mul %7 %7
      %9 = add %8 %6
      %10 = maximum %9 %6
      store out0[4*N*M*j0 + 4*i0 + j1] %10
      %11 = reduce sum %10
    store out1[i0] %11
""",
    "gather": """
kernel gather(in0: f32[N*M], in1: i64[K]) -> (out0: f32[K*M], out1: f32[K]):
  parallel i0 < K, i1 < M:
    %0 = load in1[i0]
    %1 = load in0[M*(%0 < N) + i1]
    store out0[M*i0 + i1] %1
  parallel i0 < K:
    %2 = load in1[i0]
    %3 = load in0[M*(%2 < N)]
    store out1[i0] %3
""",
    "scatter": """
kernel scatter(in0: i64[K], in1: f32[K*M], out0: inout f32[N*M], out1: inout f32[N], out2: inout bf16[N]) -> ():
  parallel i0 < K, i1 < M:
    %0 = load in0[i0]
    %1 = load in1[M*i0 + i1]
    store add out0[M*(%0 < N) + i1] %1
  parallel i0 < K, i1 < M:
    %2 = load in0[i0]
    %3 = load in1[M*i0 + i1]
    store max out1[(%2 < N)] %3
  parallel i0 < K:
    %4 = load in0[i0]
    %5 = load in1[M*i0]
    %6 = cast %5 : bf16
    store mul out2[(%4 < N)] %6
""",
    "permuted": """
kernel permuted(in0: f32[N*M*K]) -> (out0: f32[N*M*K]):
  parallel i0 < N*M*K:
    %0 = load in0[i0]
    %1 = load in0[N*M*(i0 % K) + N*((i0 // K) % M) + i0 // (M*K)]
    %2 = sub %0 %1
    store out0[i0] %2
""",
    "bools": """
kernel bools(in0: b8[N*M], in1: f32[N*M], in2: i64[N*M]) -> (out0: b8[N], out1: b8[N], out2: b8[N*M], out3: f32[N*M]):
  %0 = const 0.0 : f32
  %1 = const 2 : i64
  parallel i0 < N:
    reduce j0 < M:
      %2 = load in0[M*i0 + j0]
      %3 = reduce any %2
      %4 = reduce all %2
    store out0[i0] %3
    store out1[i0] %4
    parallel j0 < M:
      %5 = load in0[M*i0 + j0]
      %6 = load in1[M*i0 + j0]
      %7 = load in2[M*i0 + j0]
      %8 = gt %6 %0
      %9 = ne %7 %1
      %10 = and %8 %9
      %11 = xor %10 %5
      store out2[M*i0 + j0] %11
      %12 = where %11 %6 %0
      store out3[M*i0 + j0] %12
""",
    "bytes": """
kernel bytes(in0: i8[N*M], in1: u8[N*M]) -> (out0: i8[N], out1: u8[N]):
  parallel i0 < N:
    reduce j0 < M:
      %0 = load in0[M*i0 + j0]
      %1 = reduce sum %0
      %2 = load in1[M*i0 + j0]
      %3 = reduce max %2
    store out0[i0] %1
    store out1[i0] %3
""",
    "integers": """
kernel integers(in0: i32[N*M], in1: i64[N*M]) -> (out0: i32[N*M], out1: i64[N*M], out2: f32[N*M]):
  %0 = const 7 : i32
  %1 = const 5 : i64
  parallel i0 < N*M:
    %2 = load in0[i0]
    %3 = floordiv %2 %0
    store out0[i0] %3
    %4 = load in1[i0]
    %5 = mul %4 %4
    %6 = sub %5 %1
    store out1[i0] %6
    %7 = cast %4 : f32
    store out2[i0] %7
""",
    "remainder": """
kernel remainder(in0: i64[N*M]) -> (out0: i64[N*M]):
  %0 = const -3 : i64
  parallel i0 < N*M:
    %1 = load in0[i0]
    %2 = mod %1 %0
    store out0[i0] %2
""",
    "in_place": """
kernel in_place(in0: inout f32[N*M]) -> (out0: f32[1]):
  %0 = const 3.0 : f32
  store out0[0] %0
  parallel i0 < N*M:
    %1 = load in0[i0]
    %2 = mul %1 %1
    store in0[i0] %2
""",
}


def kernel(name: str, **sizes: int | None) -> Kernel:
    """The kernel of that name; a size given as None stays a symbol."""
    return kernels.sized(TEXTS[name], **sizes)


def sizes_of(name: str) -> tuple[str, ...]:
    return kernels.sizes_of(TEXTS[name])


def welford(v: Values, N: int, M: int) -> Values:
    x = v["in0"].view(N, M)
    return {"out0": x.mean(1), "out1": (x - x.mean(1, keepdim=True)).square().sum(1)}


def row_losses(v: Values, N: int, M: int) -> Values:
    losses = v["in0"].view(N, M).logsumexp(1)
    value, place = losses.max(0)
    return {"out0": losses.sum(), "out1": v["in0"].view(N, M).amax(1).sum(), "out2": value, "out3": place}


def chosen(v: Values, N: int, M: int) -> Values:
    one, two = (v[name].view(4, N * M, 4) for name in ("in0", "in1"))
    x = torch.where((torch.arange(N * M) < 2)[None, :, None], one, two)
    out = (x * x + x).maximum(x)
    return {"out0": out, "out1": out.sum((0, 2))}


def scatter(v: Values, N: int, M: int, K: int) -> Values:
    at, x = v["in0"], v["in1"].view(K, M)
    rows = at[:, None].expand(K, M)
    return {
        "out0": v["out0"].view(N, M).index_add(0, at, x),
        "out1": v["out1"].scatter_reduce(0, rows.reshape(-1), x.reshape(-1), "amax"),
        "out2": v["out2"].scatter_reduce(0, at, x[:, 0].bfloat16().double(), "prod"),
    }


def bools(v: Values, N: int, M: int) -> Values:
    flag = v["in0"] ^ ((v["in1"] > 0) & (v["in2"] != 2))
    rows = v["in0"].view(N, M)
    return {"out0": rows.any(1), "out1": rows.all(1), "out2": flag, "out3": v["in1"].where(flag, 0)}


def integers(v: Values, N: int, M: int) -> Values:
    return {"out0": v["in0"].div(7, rounding_mode="floor"), "out1": v["in1"] * v["in1"] - 5, "out2": v["in1"].double()}


REFERENCES: Mapping[str, Callable[..., Values]] = {
    **kernels.REFERENCES,
    "broadcast": lambda v, N, M: {"out0": v["in0"].view(N, M) + v["in1"] * v["in2"].tanh()[:, None]},
    "cast": lambda v, N, M: {"out0": v["in0"] + v["in1"], "out1": v["in0"] + v["in1"]},
    "welford": welford,
    "total": lambda v, N, M: {"out0": v["in0"].sum(), "out1": v["in0"].amax(), "out2": v["in0"] - v["in0"].amax()},
    "row_losses": row_losses,
    "column_softmax": lambda v, N, M: {"out0": v["in0"].view(N, M).softmax(0)},
    "channel_softmax": lambda v, N, M, K: {
        "out0": v["in0"].view(K, N, M).transpose(1, 2).reshape(K * M, N).softmax(0).view(K, M, N).transpose(1, 2)
    },
    "chosen": chosen,
    "cumsum": lambda v, N, M: {"out0": v["in0"].view(N, M).cumsum(1), "out1": v["in0"].view(N, M).cummax(0).values},
    "transposed": lambda v, N, M: {"out0": (v["in0"].view(N, M) * v["in1"][:, None]).T},
    "gather": lambda v, N, M, K: {"out0": v["in0"].view(N, M)[v["in1"]], "out1": v["in0"].view(N, M)[v["in1"], 0]},
    "scatter": scatter,
    "permuted": lambda v, N, M, K: {"out0": v["in0"] - v["in0"].view(K, M, N).permute(2, 1, 0).reshape(-1)},
    "bools": bools,
    "bytes": lambda v, N, M: {
        "out0": v["in0"].view(N, M).sum(1, dtype=torch.int8),
        "out1": v["in1"].view(N, M).amax(1),
    },
    "integers": integers,
    "remainder": lambda v, N, M: {"out0": v["in0"].remainder(-3)},
    "in_place": lambda v, N, M: {"in0": v["in0"] * v["in0"], "out0": torch.tensor(3.0)},
}
