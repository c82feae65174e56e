extern "C" void scatter(const i64* in0, const float* in1, float* out0, float* out1, bf16* out2, i64 K_, i64 M, i64 N_) {
  parallel(blocks(M, 128), (384 * K_), [=](i64 from, i64 to) BODY {
    for (i64 i1_block = from; i1_block < to; ++i1_block) {
      const i64 i1_low = i1_block * 128, i1_high = least(i1_low + 128, M);
      const int i1_n = i1_high - i1_low;
      for (i64 i0 = 0; i0 < K_; ++i0) {
        const i64 v0 = in0[i0];
        SIMD for (int l = 0; l < i1_n; ++l) {
          const i64 i1 = i1_low + l;
          const float v1 = in1[M * i0 + i1];
          out0[i1 + M * v0] = out0[i1 + M * v0] + v1;
        }
      }
    }
  });
  for (i64 i0 = 0; i0 < K_; ++i0) {
    for (i64 i1 = 0; i1 < M; ++i1) {
      const i64 v2 = in0[i0];
      const float v3 = in1[M * i0 + i1];
      out1[v2] = maximum(out1[v2], v3);
    }
  }
  for (i64 i0 = 0; i0 < K_; ++i0) {
    const i64 v4 = in0[i0];
    const float v5 = in1[M * i0];
    const bf16 v6 = cast<bf16>(v5);
    out2[v4] = cast<bf16>(widen(out2[v4]) * widen(v6));
  }
}
