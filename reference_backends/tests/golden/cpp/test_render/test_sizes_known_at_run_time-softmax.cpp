extern "C" void softmax(const float* in0, float* out0, i64 M, i64 N_) {
  parallel(N_, (32 * M), [=](i64 from, i64 to) BODY {
    for (i64 i0 = from; i0 < to; ++i0) {
      float acc1[L]; fill(acc1, lowest<float>);
      {
        const auto r0_step = [&](i64 r0, int l, bool on) BODY {
          const float v0 = on ? in0[M * i0 + r0] : float(0);
          acc1[l] = maximum(acc1[l], (on ? v0 : lowest<float>));
        };
        i64 r0_at = 0;
        for (; r0_at + L <= M; r0_at += L)
          SIMD for (int l = 0; l < L; ++l) r0_step(r0_at + l, l, true);
        if (r0_at < M)
          SIMD for (int l = 0; l < L; ++l) r0_step(r0_at + l, l, l < int(M - r0_at));
      }
      const float v1 = fold<maximum<float>>(acc1);
      double sum5[L]; fill(sum5, 0.);
      for (i64 r0_span = 0; r0_span < M; r0_span += 32 * L) {
        const i64 r0_end = least(r0_span + 32 * L, M);
        float part5[L]; fill(part5, float(0));
        {
          const auto r0_step = [&](i64 r0, int l, bool on) BODY {
            const float v2 = on ? in0[M * i0 + r0] : float(0);
            const float v3 = v2 - v1;
            const float v4 = exp(v3);
            part5[l] = add(part5[l], (on ? v4 : float(0)));
          };
          i64 r0_at = r0_span;
          for (; r0_at + L <= r0_end; r0_at += L)
            SIMD for (int l = 0; l < L; ++l) r0_step(r0_at + l, l, true);
          if (r0_at < r0_end)
            SIMD for (int l = 0; l < L; ++l) r0_step(r0_at + l, l, l < int(r0_end - r0_at));
        }
        flush(sum5, part5);
      }
      const float v5 = float(total(sum5));
      SIMD for (i64 r0 = 0; r0 < M; ++r0) {
        const float v6 = in0[M * i0 + r0];
        const float v7 = v6 - v1;
        const float v8 = exp(v7);
        const float v9 = v8 / v5;
        out0[M * i0 + r0] = v9;
      }
    }
  });
}
