extern "C" void row_losses(const float* in0, float* out0, double* out1, float* out2, i64* out3, i64 M, i64 N_) {
  const i64 tasks10 = N_, chunks10 = least(tasks10, 64);
  double chunk10[64];
  double* const to10 = chunk10;
  double chunk11[64];
  double* const to11 = chunk11;
  const auto argmax12 = [](float& x0, i64& x1, float x2, i64 x3) BODY {
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
  float chunk12[64];
  float* const to12 = chunk12;
  i64 chunk13[64];
  i64* const to13 = chunk13;
  parallel(chunks10, (N_ * ((15 * M) + 26)) / most(chunks10, 1), [=](i64 from, i64 to) BODY {
    for (i64 chunk = from; chunk < to; ++chunk) {
      double sum10 = 0.;
      double sum11 = 0.;
      double err11 = 0.;
      float acc12 = float(-INF);
      i64 acc13 = i64(9223372036854775807);
      for (i64 i0 = tasks10 * chunk / chunks10; i0 < tasks10 * (chunk + 1) / chunks10; ++i0) {
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
        const float v6 = log(v5);
        const float v7 = v6 + v1;
        const double v8 = cast<double>(v1);
        const i64 v9 = i0;
        sum10 += v7;
        flush(sum11, err11, v8);
        argmax12(acc12, acc13, v7, v9);
      }
      to10[chunk] = sum10;
      to11[chunk] = total(sum11, err11);
      to12[chunk] = acc12;
      to13[chunk] = acc13;
    }
  });
  double sum10 = 0.;
  double sum11 = 0.;
  double err11 = 0.;
  float acc12 = float(-INF);
  i64 acc13 = i64(9223372036854775807);
  for (i64 chunk = 0; chunk < chunks10; ++chunk) {
    sum10 += chunk10[chunk];
    flush(sum11, err11, chunk11[chunk]);
    argmax12(acc12, acc13, chunk12[chunk], chunk13[chunk]);
  }
  const float v10 = float(sum10);
  const double v11 = total(sum11, err11);
  const float v12 = acc12;
  const i64 v13 = acc13;
  out0[0] = v10;
  out1[0] = v11;
  out2[0] = v12;
  out3[0] = v13;
}
