extern "C" void window(const float* in0, float* out0, i64 M, i64 N_) {
  const i64 v1 = N_;
  const i64 v2 = M;
  parallel(N_ * blocks(M, 128), 10496, [=](i64 from, i64 to) BODY {
    i64 task = from;
    i64 i1_block = task % blocks(M, 128), i0 = task / blocks(M, 128);
    for (; task < to; ++task) {
      const i64 i1_low = i1_block * 128, i1_high = least(i1_low + 128, M);
      const int i1_n = i1_high - i1_low;
      SIMD for (int l = 0; l < i1_n; ++l) {
        const i64 i1 = i1_low + l;
        float acc13 = float(0);
        const auto j0_j1_12_point = [&](i64 j0, i64 j1) BODY {
          const i64 v3 = i0 + j0 + (-1);
          const i64 v4 = i1 + j1 + (-1);
          const bool v5 = v3 >= i64(0);
          const bool v6 = v3 < v1;
          const bool v7 = v4 >= i64(0);
          const bool v8 = v4 < v2;
          const bool v9 = v5 & v6;
          const bool v10 = v7 & v8;
          const bool v11 = v9 & v10;
          const float v12 = v11 ? in0[M * i0 + i1 + M * j0 + j1 + (((-1) * M) + (-1))] : float(0);
          acc13 = add(acc13, v12);
        };
        j0_j1_12_point(0, 0);
        j0_j1_12_point(0, 1);
        j0_j1_12_point(0, 2);
        j0_j1_12_point(1, 0);
        j0_j1_12_point(1, 1);
        j0_j1_12_point(1, 2);
        j0_j1_12_point(2, 0);
        j0_j1_12_point(2, 1);
        j0_j1_12_point(2, 2);
        const float v13 = acc13;
        out0[M * i0 + i1] = v13;
      }
      if (++i1_block == blocks(M, 128)) i1_block = 0, ++i0;
    }
  });
}
