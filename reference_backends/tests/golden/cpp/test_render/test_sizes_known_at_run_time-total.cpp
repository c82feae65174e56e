extern "C" void total(const float* in0, float* out0, float* out1, float* out2, i64 M, i64 N_) {
  const i64 tasks1 = N_ * blocks(M, 16384), chunks1 = least(tasks1, 64);
  double chunk1[64];
  double* const to1 = chunk1;
  float chunk2[64];
  float* const to2 = chunk2;
  parallel(chunks1, (3 * M * N_) / most(chunks1, 1), [=](i64 from, i64 to) BODY {
    for (i64 chunk = from; chunk < to; ++chunk) {
      double sum1[L]; fill(sum1, 0.);
      float acc2[L]; fill(acc2, lowest<float>);
      i64 task = tasks1 * chunk / chunks1;
      i64 i1_block = task % blocks(M, 16384), i0 = task / blocks(M, 16384);
      const i64 last = tasks1 * (chunk + 1) / chunks1;
      for (; task < last; ++task) {
        const i64 i1_low = i1_block * 16384, i1_high = least(i1_low + 16384, M);
        for (i64 i1_span = i1_low; i1_span < i1_high; i1_span += 32 * L) {
          const i64 i1_end = least(i1_span + 32 * L, i1_high);
          float part1[L]; fill(part1, float(0));
          {
            const auto i1_step = [&](i64 i1, int l, bool on) BODY {
              const float v0 = on ? in0[M * i0 + i1] : float(0);
              part1[l] = add(part1[l], (on ? v0 : float(0)));
              acc2[l] = maximum(acc2[l], (on ? v0 : lowest<float>));
            };
            i64 i1_at = i1_span;
            for (; i1_at + L <= i1_end; i1_at += L)
              SIMD for (int l = 0; l < L; ++l) i1_step(i1_at + l, l, true);
            if (i1_at < i1_end)
              SIMD for (int l = 0; l < L; ++l) i1_step(i1_at + l, l, l < int(i1_end - i1_at));
          }
          flush(sum1, part1);
        }
        if (++i1_block == blocks(M, 16384)) i1_block = 0, ++i0;
      }
      to1[chunk] = total(sum1);
      to2[chunk] = fold<maximum<float>>(acc2);
    }
  });
  double sum1 = 0.;
  float acc2 = lowest<float>;
  for (i64 chunk = 0; chunk < chunks1; ++chunk) {
    sum1 += chunk1[chunk];
    acc2 = maximum(acc2, chunk2[chunk]);
  }
  const float v1 = float(sum1);
  const float v2 = acc2;
  out0[0] = v1;
  out1[0] = v2;
  parallel((M * N_), 3, [=](i64 from, i64 to) BODY {
    SIMD for (i64 i0 = from; i0 < to; ++i0) {
      const float v3 = in0[i0];
      const float v4 = v3 - v2;
      out2[i0] = v4;
    }
  });
}
