__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void argmax_0(__global float *restrict in0_at, long in0_from, __global float *restrict out0_at, long out0_from, __global long *restrict out1_at, long out1_from) {
  __global float *in0_ = in0_at + in0_from;
  __global float *out0_ = out0_at + out0_from;
  __global long *out1_ = out1_at + out1_from;
  const int item = get_local_id(0);
  __local float l2[64];
  __local long l3[64];
  long point = get_group_id(0);
  const int i0_ = point;
  float v2 = ((float)-INFINITY);
  long v3 = ((long)0x7fffffffffffffffUL);
  for (long next = item; next < 768; next += 64) {
    long digit = next;
    const int r0_ = digit;
    const float v0 = in0_[768 * i0_ + r0_];
    const long v1 = r0_;
    {
      const bool t4 = (v0 > v2);
      const bool t5 = (v0 == v2);
      const bool t6 = (v2 != v2);
      const bool t7 = (v0 != v0);
      const bool t8 = (t6 & t7);
      const bool t9 = (t5 | t8);
      const bool t10 = (v1 < v3);
      const bool t11 = (t9 & t10);
      const bool t12 = (!t6);
      const bool t13 = (t7 & t12);
      const bool t14 = (t4 | t13);
      const bool t15 = (t14 | t11);
      const float t16 = (t15 ? v0 : v2);
      const long t17 = (t15 ? v1 : v3);
      v2 = t16;
      v3 = t17;
    }
  }
  l2[item] = v2;
  l3[item] = v3;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 32; step > 0; step /= 2) {
    if (item < step) {
      {
        const bool t4 = (l2[item + step] > l2[item]);
        const bool t5 = (l2[item + step] == l2[item]);
        const bool t6 = (l2[item] != l2[item]);
        const bool t7 = (l2[item + step] != l2[item + step]);
        const bool t8 = (t6 & t7);
        const bool t9 = (t5 | t8);
        const bool t10 = (l3[item + step] < l3[item]);
        const bool t11 = (t9 & t10);
        const bool t12 = (!t6);
        const bool t13 = (t7 & t12);
        const bool t14 = (t4 | t13);
        const bool t15 = (t14 | t11);
        const float t16 = (t15 ? l2[item + step] : l2[item]);
        const long t17 = (t15 ? l3[item + step] : l3[item]);
        l2[item] = t16;
        l3[item] = t17;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  v2 = l2[0];
  v3 = l3[0];
  if (item == 0) {
    out0_[i0_] = v2;
  }
  if (item == 0) {
    out1_[i0_] = v3;
  }
}
