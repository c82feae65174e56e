extern "C" void permuted(const float* in0, float* out0, i64 K_, i64 M, i64 N_) {
  parallel((K_ * M * N_), 4, [=](i64 from, i64 to) BODY {
    SIMD for (i64 i0 = from; i0 < to; ++i0) {
      const float v0 = in0[i0];
      const float v1 = in0[N_ * ((((i0) / K_)) % M) + (M * N_) * ((i0) % K_) + ((i0) / (K_ * M))];
      const float v2 = v0 - v1;
      out0[i0] = v2;
    }
  });
}
