extern "C" void broadcast(const float* in0, const float* in1, const float* in2, float* out0) {
  parallel(4096, 12288, [=](i64 from, i64 to) BODY {
    for (i64 i0 = from; i0 < to; ++i0) {
      const float v2 = in2[i0];
      const float v3 = tanh(v2);
      SIMD for (i64 i1 = 0; i1 < 768; ++i1) {
        const float v0 = in0[768 * i0 + i1];
        const float v1 = in1[i1];
        const float v4 = v1 * v3;
        const float v5 = v0 + v4;
        out0[768 * i0 + i1] = v5;
      }
    }
  });
}
