extern "C" void column_sum(const float* in0, float* out0) {
  parallel(6, 1048704, [=](i64 from, i64 to) BODY {
    for (i64 i0_block = from; i0_block < to; ++i0_block) {
      const i64 i0_low = i0_block * 128, i0_high = least(i0_low + 128, 768);
      double sum1[128u]; fill(sum1, 0.);
      for (i64 r0_span = 0; r0_span < 4096; r0_span += 32) {
        const i64 r0_end = least(r0_span + 32, 4096);
        float part1[128u]; fill(part1, float(0));
        for (i64 r0 = r0_span; r0 < r0_end; ++r0) {
          SIMD for (int l = 0; l < 128; ++l) {
            const i64 i0 = i0_low + l;
            const float v0 = in0[i0 + 768 * r0];
            part1[l] = add(part1[l], v0);
          }
        }
        flush(sum1, part1);
      }
      SIMD for (int l = 0; l < 128; ++l) {
        const i64 i0 = i0_low + l;
        const float v1 = float(sum1[l]);
        out0[i0] = v1;
      }
    }
  });
}
