extern "C" void softmax(const float* in0, float* out0) {
  parallel(4096, 24576, [=](i64 from, i64 to) BODY {
    for (i64 i0 = from; i0 < to; ++i0) {
      float row4[1024u];
      float acc1[L]; fill(acc1, lowest<float>);
      for (i64 r0_at = 0; r0_at < 768; r0_at += L) {
        SIMD for (int l = 0; l < L; ++l) {
          const i64 r0 = r0_at + l;
          const float v0 = in0[768 * i0 + r0];
          acc1[l] = maximum(acc1[l], v0);
        }
      }
      const float v1 = fold<maximum<float>>(acc1);
      float part5[L]; fill(part5, float(0));
      for (i64 r0_at = 0; r0_at < 768; r0_at += L) {
        SIMD for (int l = 0; l < L; ++l) {
          const i64 r0 = r0_at + l;
          const float v2 = in0[768 * i0 + r0];
          const float v3 = v2 - v1;
          const float v4 = exp(v3);
          row4[r0] = v4;
          part5[l] = add(part5[l], v4);
        }
      }
      const float v5 = float(total(part5));
      SIMD for (i64 r0 = 0; r0 < 768; ++r0) {
        const float v8 = row4[r0];
        const float v9 = v8 / v5;
        out0[768 * i0 + r0] = v9;
      }
    }
  });
}
