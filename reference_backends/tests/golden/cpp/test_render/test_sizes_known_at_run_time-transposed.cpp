extern "C" void transposed(const float* in0, const float* in1, float* out0, i64 M, i64 N_) {
  parallel(blocks(M, 64) * blocks(N_, 64), 16384, [=](i64 from, i64 to) BODY {
    i64 task = from;
    i64 i1_block = task % blocks(N_, 64), i0_block = task / blocks(N_, 64);
    for (; task < to; ++task) {
      const i64 i0_low = i0_block * 64, i0_high = least(i0_low + 64, M);
      const i64 i1_low = i1_block * 64, i1_high = least(i1_low + 64, N_);
      float tile0[64 * 64];
      turn(tile0, 64, in0 + i0_low + M * i1_low, M, i1_high - i1_low, i0_high - i0_low);
      for (i64 i0 = i0_low; i0 < i0_high; ++i0) {
        SIMD for (i64 i1 = i1_low; i1 < i1_high; ++i1) {
          const float v0 = tile0[(i0 - i0_low) * 64 + i1 - i1_low];
          const float v1 = in1[i1];
          const float v2 = v0 * v1;
          out0[N_ * i0 + i1] = v2;
        }
      }
      if (++i1_block == blocks(N_, 64)) i1_block = 0, ++i0_block;
    }
  });
}
