extern "C" void layer_norm(const float* in0, const float* in1, const float* in2, float* out0, float* out1) {
  const i64 v1 = 768;
  const float v2 = cast<float>(v1);
  parallel(4096, 10766, [=](i64 from, i64 to) BODY {
    for (i64 i0 = from; i0 < to; ++i0) {
      float part4[L]; fill(part4, float(0));
      for (i64 r0_at = 0; r0_at < 768; r0_at += L) {
        SIMD for (int l = 0; l < L; ++l) {
          const i64 r0 = r0_at + l;
          const float v3 = in0[768 * i0 + r0];
          part4[l] = add(part4[l], v3);
        }
      }
      const float v4 = float(total(part4));
      const float v5 = v4 / v2;
      float part9[L]; fill(part9, float(0));
      for (i64 r0_at = 0; r0_at < 768; r0_at += L) {
        SIMD for (int l = 0; l < L; ++l) {
          const i64 r0 = r0_at + l;
          const float v6 = in0[768 * i0 + r0];
          const float v7 = v6 - v5;
          const float v8 = v7 * v7;
          part9[l] = add(part9[l], v8);
        }
      }
      const float v9 = float(total(part9));
      const float v10 = v9 / v2;
      const float v11 = v10 + 9.99999975e-06f;
      const float v12 = rsqrt(v11);
      out1[i0] = v12;
      SIMD for (i64 r0 = 0; r0 < 768; ++r0) {
        const float v13 = in0[768 * i0 + r0];
        const float v14 = v13 - v5;
        const float v15 = v14 * v12;
        const float v16 = in1[r0];
        const float v17 = v15 * v16;
        const float v18 = in2[r0];
        const float v19 = v17 + v18;
        out0[768 * i0 + r0] = v19;
      }
    }
  });
}
