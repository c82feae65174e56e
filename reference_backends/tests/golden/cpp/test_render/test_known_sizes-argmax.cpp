extern "C" void argmax(const float* in0, float* out0, i64* out1) {
  parallel(4096, 9986, [=](i64 from, i64 to) BODY {
    for (i64 i0 = from; i0 < to; ++i0) {
      const auto argmax2 = [](float& x0, i64& x1, float x2, i64 x3) BODY {
        const bool x4 = x2 > x0;
        const bool x5 = x2 == x0;
        const bool x6 = x0 != x0;
        const bool x7 = x2 != x2;
        const bool x8 = x6 & x7;
        const bool x9 = x5 | x8;
        const bool x10 = x3 < x1;
        const bool x11 = x9 & x10;
        const bool x12 = !x6;
        const bool x13 = x7 & x12;
        const bool x14 = x4 | x13;
        const bool x15 = x14 | x11;
        const float x16 = x15 ? x2 : x0;
        const i64 x17 = x15 ? x3 : x1;
        x0 = x16; x1 = x17;
      };
      float acc2[L]; fill(acc2, float(-INF));
      i64 acc3[L]; fill(acc3, i64(9223372036854775807));
      for (i64 r0_at = 0; r0_at < 768; r0_at += L) {
        SIMD for (int l = 0; l < L; ++l) {
          const i64 r0 = r0_at + l;
          const float v0 = in0[768 * i0 + r0];
          const i64 v1 = r0;
          argmax2(acc2[l], acc3[l], v0, v1);
        }
      }
      halve<L>([&](int l, int m) BODY { argmax2(acc2[l], acc3[l], acc2[m], acc3[m]); });
      const float v2 = acc2[0];
      const i64 v3 = acc3[0];
      out0[i0] = v2;
      out1[i0] = v3;
    }
  });
}
