__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void softmax_0(__global float *restrict in0_at, long in0_from, __global float *restrict out0_at, long out0_from) {
  __global float *in0_ = in0_at + in0_from;
  __global float *out0_ = out0_at + out0_from;
  const int item = get_local_id(0);
  __local float l1[64];
  __local float l5[64];
  long point = get_group_id(0);
  const int i0_ = point;
  float v1 = ((float)-INFINITY);
  for (long next = item; next < 768; next += 64) {
    long digit = next;
    const int r0_ = digit;
    const float v0 = in0_[768 * i0_ + r0_];
    {
      const float t2 = (v1 > v0 || v1 != v1 ? v1 : v0);
      v1 = t2;
    }
  }
  l1[item] = v1;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 32; step > 0; step /= 2) {
    if (item < step) {
      {
        const float t2 = (l1[item] > l1[item + step] || l1[item] != l1[item] ? l1[item] : l1[item + step]);
        l1[item] = t2;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  v1 = l1[0];
  float v5 = (0x0.0p+0f);
  for (long next = item; next < 768; next += 64) {
    long digit = next;
    const int r0_ = digit;
    const float v2 = in0_[768 * i0_ + r0_];
    const float v3 = (v2 - v1);
    const float v4 = exp(v3);
    {
      const float t2 = (v5 + v4);
      v5 = t2;
    }
  }
  l5[item] = v5;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 32; step > 0; step /= 2) {
    if (item < step) {
      {
        const float t2 = (l5[item] + l5[item + step]);
        l5[item] = t2;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  v5 = l5[0];
  for (long next = item; next < 768; next += 64) {
    long digit = next;
    const int r0_ = digit;
    const float v6 = in0_[768 * i0_ + r0_];
    const float v7 = (v6 - v1);
    const float v8 = exp(v7);
    const float v9 = (v8 / v5);
    out0_[768 * i0_ + r0_] = v9;
  }
}
