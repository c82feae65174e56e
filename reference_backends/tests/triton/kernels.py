"""The kernels of these tests, as texts over sizes N, M, K; ``kernel`` fixes sizes or leaves them to run time."""

from __future__ import annotations

from keel.loops import Kernel

from .. import kernels

TEXTS = {
    **kernels.TEXTS,
    "broadcast": """
kernel broadcast(in0: f32[N*M], in1: f32[M], in2: f32[N]) -> (out0: f32[N*M]):
  parallel i0 < N, i1 < M:
    %0 = load in0[M*i0 + i1]
    %1 = load in1[i1]
    %2 = load in2[i0]
    %3 = mul %1 %2
    %4 = add %0 %3
    %5 = const 0.5 : f32
    %6 = mul %4 %5
    store out0[M*i0 + i1] %6
""",
    "layer_norm_bf16": """
kernel layer_norm_bf16(in0: bf16[N*M]) -> (out0: bf16[N*M]):
  %0 = const 1e-05 : f32
  %1 = position M
  %2 = cast %1 : f32
  parallel i0 < N:
    reduce r0 < M:
      %3 = load in0[M*i0 + r0]
      %4 = cast %3 : f32
      %5 = const 1.0 : f32
      %6 = const 0.0 : f32
      %7, %8, %9 = reduce welford %4 %6 %5
    %10 = div %8 %2
    %11 = add %10 %0
    %12 = rsqrt %11
    parallel r0 < M:
      %13 = load in0[M*i0 + r0]
      %14 = cast %13 : f32
      %15 = sub %14 %7
      %16 = mul %15 %12
      %17 = cast %16 : bf16
      store out0[M*i0 + r0] %17
""",
    "total": """
kernel total(in0: f32[N*M]) -> (out0: f32[1], out1: f32[N*M], out2: f32[1]):
  reduce r0 < N, r1 < M:
    %0 = load in0[M*r0 + r1]
    %1 = reduce sum %0
    %2 = reduce max %0
  store out0[0] %1
  store out2[0] %2
  parallel i0 < N, i1 < M:
    %3 = load in0[M*i0 + i1]
    %4 = div %3 %1
    store out1[M*i0 + i1] %4
""",
    "cumsum": """
kernel cumsum(in0: f32[N*M]) -> (out0: f32[N*M]):
  parallel i0 < N:
    scan r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = scan sum %0
      store out0[M*i0 + r0] %1
""",
    "cummax": """
kernel cummax(in0: f32[N*M]) -> (out0: f32[N*M], out1: i64[N*M]):
  parallel i0 < M:
    scan r0 < N:
      %0 = load in0[M*r0 + i0]
      %1 = position r0
      %2, %3 = scan argmax %0 %1
      store out0[M*r0 + i0] %2
      store out1[M*r0 + i0] %3
""",
    "masked": """
kernel masked(in0: f32[N*M]) -> (out0: f32[N*M]):
  parallel i0 < N:
    reduce r0 < M:
      %0 = position i0
      %1 = position r0
      %2 = le %1 %0
      %3 = load in0[M*i0 + r0] if %2
      %4 = reduce sum %3
    parallel r0 < M:
      %5 = position i0
      %6 = position r0
      %7 = le %6 %5
      store out0[M*i0 + r0] %4 if %7
""",
    "roll": """
kernel roll(in0: f32[N*M]) -> (out0: f32[N*M], out1: f32[N*M]):
  parallel i0 < N, i1 < M:
    %0 = load in0[M*i0 + (i1 + 2*M - 3) % M]
    store out0[M*i0 + i1] %0
    %1 = position i1 - 3
    %2 = const 0 : i64
    %3 = ge %1 %2
    %4 = load in0[M*i0 + i1 - 3] if %3
    store out1[M*i0 + i1] %4
""",
    "gather": """
kernel gather(in0: f32[N*M], in1: i64[K]) -> (out0: f32[K*M]):
  parallel i0 < K, i1 < M:
    %0 = load in1[i0]
    %1 = load in0[M*(%0 < N) + i1]
    store out0[M*i0 + i1] %1
""",
    "scatter_add": """
kernel scatter_add(in0: f32[N*M], in1: i64[K], in2: f32[K*M], out0: inout f32[N*M]) -> ():
  parallel i0 < N*M:
    %0 = load in0[i0]
    store out0[i0] %0
  parallel i0 < K, i1 < M:
    %1 = load in1[i0]
    %2 = load in2[M*i0 + i1]
    store add out0[M*(%1 < N) + i1] %2
""",
    "window": """
kernel window(in0: f32[N*M]) -> (out0: f32[N*M]):
  parallel i0 < N, i1 < M:
    reduce r0 < 3, r1 < 3:
      %0 = position i0 + r0 - 1
      %1 = position i1 + r1 - 1
      %2 = const 0 : i64
      %3 = position N
      %4 = position M
      %5 = ge %0 %2
      %6 = lt %0 %3
      %7 = ge %1 %2
      %8 = lt %1 %4
      %9 = and %5 %6
      %10 = and %7 %8
      %11 = and %9 %10
      %12 = load in0[M*i0 + M*r0 + i1 + r1 - M - 1] if %11
      %13 = reduce sum %12
    store out0[M*i0 + i1] %13
""",
    "side_by_side": """
kernel side_by_side(in0: f32[N*M], in1: f32[K]) -> (out0: f32[N], out1: f32[K], out2: f32[1]):
  parallel i0 < N:
    reduce r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = reduce min %0
    store out0[i0] %1
  parallel i0 < K:
    %2 = load in1[i0]
    %3 = neg %2
    store out1[i0] %3
  reduce r0 < K:
    %4 = load in1[r0]
    %5 = reduce prod %4
  store out2[0] %5
""",
    "in_turn": """
kernel in_turn(in0: f32[N*M], out0: inout f32[N*M]) -> (out1: f32[N*M]):
  parallel i0 < N, i1 < M:
    %0 = load in0[M*i0 + i1]
    %1 = abs %0
    store out0[N*i1 + i0] %1
  parallel i0 < N*M:
    %2 = load out0[i0]
    %3 = add %2 %2
    store out1[i0] %3
""",
    "row_twice": """
kernel row_twice(in0: f32[N*M], out0: inout f32[N*M]) -> (out1: f32[N*M]):
  parallel i0 < N:
    parallel r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = add %0 %0
      store out0[M*i0 + r0] %1
    parallel r0 < M:
      %2 = load out0[M*i0 - r0 + M - 1]
      store out1[M*i0 + r0] %2
""",
    "in_place": """
kernel in_place(in0: inout f32[N*M]) -> ():
  parallel i0 < N*M:
    %0 = load in0[i0]
    %1 = mul %0 %0
    store in0[i0] %1
""",
    "permuted": """
kernel permuted(in0: f32[N*M*K]) -> (out0: f32[N*M*K]):
  parallel i0 < N*M*K:
    %0 = load in0[K*((i0 // K) % M) + M*K*(i0 // (M*K)) + i0 % K]
    %1 = load in0[N*M*(i0 % K) + N*((i0 // K) % M) + i0 // (M*K)]
    %2 = sub %0 %1
    store out0[i0] %2
""",
    "bools": """
kernel bools(in0: b8[N*M], in1: b8[N*M]) -> (out0: b8[N], out1: b8[N], out2: b8[N*M]):
  parallel i0 < N:
    reduce r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = load in1[M*i0 + r0]
      %2 = reduce any %0
      %3 = reduce all %1
    store out0[i0] %2
    store out1[i0] %3
    parallel r0 < M:
      %4 = load in0[M*i0 + r0]
      %5 = load in1[M*i0 + r0]
      %6 = not %4
      %7 = xor %6 %5
      store out2[M*i0 + r0] %7
""",
    "small_ints": """
kernel small_ints(in0: i8[N*M], in1: u8[N*M]) -> (out0: i8[N], out1: u8[N], out2: i8[N], out3: i8[N]):
  parallel i0 < N:
    reduce r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = load in1[M*i0 + r0]
      %2 = reduce sum %0
      %3 = reduce max %1
      %4 = reduce min %0
      %5 = reduce xor %0
    store out0[i0] %2
    store out1[i0] %3
    store out2[i0] %4
    store out3[i0] %5
""",
    "signed_zeros": """
kernel signed_zeros(in0: f32[N]) -> (out0: f32[N], out1: f32[N], out2: f32[N]):
  parallel i0 < N:
    %0 = load in0[i0]
    %1 = const -0.0 : f32
    %2 = mul %0 %1
    store out0[i0] %2
    %3 = neg %0
    store out1[i0] %3
    %4 = const nan : f32
    %5 = maximum %0 %4
    store out2[i0] %5
""",
    "transposed": """
kernel transposed(in0: f32[N*M*K], in1: f32[K]) -> (out0: f32[N*M*K]):
  parallel i0 < N, i1 < K, i2 < M:
    %0 = load in0[K*M*i0 + i1 + K*i2]
    %1 = load in1[i1]
    %2 = add %0 %1
    store out0[K*M*i0 + M*i1 + i2] %2
""",
    "out_of_order": """
kernel out_of_order(in0: f32[N*M*K]) -> (out0: f32[N*M*K]):
  parallel i0 < K, i1 < M, i2 < N:
    %0 = load in0[K*M*i2 + K*i1 + i0]
    %1 = neg %0
    store out0[K*M*i2 + K*i1 + i0] %1
""",
    "rows_in_rows": """
kernel rows_in_rows(in0: f32[N*M*K], in1: f32[N]) -> (out0: f32[N*M*K], out1: f32[N], out2: f32[N*M]):
  parallel i0 < N:
    %0 = load in1[i0]
    %1 = add %0 %0
    store out1[i0] %1
    parallel i1 < M:
      reduce r0 < K:
        %2 = load in0[K*M*i0 + K*i1 + r0]
        %3 = mul %2 %0
        store out0[K*M*i0 + K*i1 + r0] %3
        %4 = reduce sum %3
      store out2[M*i0 + i1] %4
""",
    "images": """
kernel images(in0: f32[N*M*K]) -> (out0: f32[M], out1: f32[N*M*K]):
  %0 = position N*K
  %1 = cast %0 : f32
  parallel i0 < M:
    reduce r0 < N, r1 < K:
      %2 = load in0[K*M*r0 + K*i0 + r1]
      %3 = reduce sum %2
    %4 = div %3 %1
    store out0[i0] %4
    parallel r0 < N, r1 < K:
      %5 = load in0[K*M*r0 + K*i0 + r1]
      %6 = sub %5 %4
      store out1[K*M*r0 + K*i0 + r1] %6
""",
    "two_widths": """
kernel two_widths(in0: f32[M + K]) -> (out0: f32[N], out1: f32[N]):
  parallel i0 < N:
    %0 = position i0
    %1 = cast %0 : f32
    reduce r0 < M:
      %2 = load in0[r0]
      %3 = mul %2 %1
      %4 = reduce sum %3
    store out0[i0] %4
    reduce r0 < K:
      %5 = load in0[r0]
      %6 = mul %5 %1
      %7 = reduce sum %6
    store out1[i0] %7
""",
    "fills": """
kernel fills(out2: inout f32[1]) -> (out0: f32[N], out1: i64[N]):
  %0 = const 3.5 : f32
  parallel i0 < N:
    store out0[i0] %0
    %1 = position 2*i0 + N
    store out1[i0] %1
  parallel i0 < N:
    store add out2[0] %0
""",
    "strips": """
kernel strips(in0: f32[N*M*K], in1: f32[N*K]) -> (out0: f32[N*M]):
  parallel i0 < N, i1 < M:
    reduce j0 < K:
      %0 = load in0[M*K*i0 + i1 + M*j0]
      %1 = load in1[K*i0 + j0]
      %2 = mul %0 %1
      %3 = reduce sum %2
    store out0[M*i0 + i1] %3
""",
    "halves": """
kernel halves(in0: f16[N], in1: bf16[N], in2: i32[N]) -> (out0: bf16[N], out1: f16[N], out2: bf16[N], out3: i32[N]):
  parallel i0 < N:
    %0 = load in0[i0]
    %1 = cast %0 : bf16
    store out0[i0] %1
    %2 = load in1[i0]
    %3 = cast %2 : f16
    store out1[i0] %3
    %4 = load in2[i0]
    %5 = cast %4 : bf16
    store out2[i0] %5
    %6 = cast %2 : i32
    store out3[i0] %6
""",
}


def kernel(name: str, **sizes: int | None) -> Kernel:
    """The kernel of that name; a size given as None stays a symbol."""
    return kernels.sized(TEXTS[name], **sizes)
