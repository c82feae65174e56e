__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void column_sum_0(__global float *restrict in0_at, long in0_from, __global float *restrict out0_at, long out0_from) {
  __global float *in0_ = in0_at + in0_from;
  __global float *out0_ = out0_at + out0_from;
  long point = get_global_id(0);
  if (point < 768) {
    const int i0_ = point;
    float v1 = (0x0.0p+0f);
    for (int r0_ = 0; r0_ < 4096; ++r0_)
    {
      const float v0 = in0_[i0_ + 768 * r0_];
      {
        const float t2 = (v1 + v0);
        v1 = t2;
      }
    }
    out0_[i0_] = v1;
  }
}
