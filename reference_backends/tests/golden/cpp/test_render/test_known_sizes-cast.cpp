extern "C" void cast(const bf16* in0, const f16* in1, bf16* out0, f16* out1) {
  parallel(3145728, 9, [=](i64 from, i64 to) BODY {
    SIMD for (i64 i0 = from; i0 < to; ++i0) {
      const bf16 v0 = in0[i0];
      const float v1 = cast<float>(v0);
      const f16 v2 = in1[i0];
      const float v3 = cast<float>(v2);
      const float v4 = v1 + v3;
      const bf16 v5 = cast<bf16>(v4);
      out0[i0] = v5;
      const f16 v6 = cast<f16>(v4);
      out1[i0] = v6;
    }
  });
}
