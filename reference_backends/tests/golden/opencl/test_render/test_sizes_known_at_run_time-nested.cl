__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void nested_0(__global float *restrict in0_at, long in0_from, __global float *restrict out0_at, long out0_from, long K_, long M_, long N_) {
  __global float *in0_ = in0_at + in0_from;
  __global float *out0_ = out0_at + out0_from;
  long point = get_global_id(0);
  if (point < N_) {
    const long i0_ = point;
    float v3 = ((float)-INFINITY);
    for (long r0_ = 0; r0_ < M_; ++r0_)
    {
      float v1 = (0x0.0p+0f);
      for (long q0_ = 0; q0_ < K_; ++q0_)
      {
        const float v0 = in0_[(K_ * M_) * i0_ + q0_ + K_ * r0_];
        {
          const float t2 = (v1 + v0);
          v1 = t2;
        }
      }
      const float v2 = (v1 * v1);
      {
        const float t2 = (v3 > v2 || v3 != v3 ? v3 : v2);
        v3 = t2;
      }
    }
    out0_[i0_] = v3;
  }
}
