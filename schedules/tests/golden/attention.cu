static __device__ __forceinline__ float max1(float a, float b) { return a < b ? b : a; }
static __device__ __forceinline__ unsigned bits1(float x) { union { float f; unsigned u; } v; v.f = x; return v.u; }
static __device__ __forceinline__ float of_bits1(unsigned x) { union { float f; unsigned u; } v; v.u = x; return v.f; }
static __device__ __forceinline__ float min1(float a, float b) { return b < a ? b : a; }
static __device__ __forceinline__ float maximum1(float a, float b) { return b == b ? max1(a, b) : b; }
static __device__ __forceinline__ float minimum1(float a, float b) { return b == b ? min1(a, b) : b; }
static __device__ __forceinline__ float sqrt1(float a) { return sqrtf(a); }
static __device__ __forceinline__ float floor1(float a) { return floorf(a); }
static __device__ __forceinline__ float fma1(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ __forceinline__ float select1(int holds, float a, float b) { return holds ? a : b; }
static __device__ __forceinline__ float f_scale1(float x0, float x1) {
  const float s4 = fma1(x1, 0.5f, 12582912.0f);
  const float s5 = (s4 - 12582912.0f);
  const float s6 = (x1 - s5);
  const float s7 = (s6 + 12582912.0f);
  const float s8 = of_bits1(bits1(s4) << 23);
  const float s10 = of_bits1(bits1(s8) + bits1(1.0f));
  const float s11 = of_bits1(bits1(s7) << 23);
  const float s12 = of_bits1(bits1(s11) + bits1(1.0f));
  const float s13 = (x0 * s10);
  const float s14 = (s13 * s12);
  return s14;
}
static __device__ __forceinline__ float f_exp1(float x0) {
  const float s2 = min1(x0, 89.0f);
  const float s4 = max1(s2, -104.0f);
  const float s7 = fma1(s4, 1.442695f, 12582912.0f);
  const float s8 = (s7 - 12582912.0f);
  const float s10 = fma1(s8, -0.6933594f, s4);
  const float s12 = fma1(s8, 0.00021219444f, s10);
  const float s15 = fma1(0.0013882517f, s12, 0.0083665475f);
  const float s17 = fma1(s15, s12, 0.0416672f);
  const float s19 = fma1(s17, s12, 0.16666543f);
  const float s21 = fma1(s19, s12, 0.49999997f);
  const float s22 = (s12 * s12);
  const float s23 = fma1(s22, s21, s12);
  const float s25 = (s23 + 1.0f);
  const float s26 = f_scale1(s25, s8);
  return s26;
}
// stage compute: 2 blocks of 32 threads
extern "C" __global__ void __launch_bounds__(32) autotune_compute(const float *__restrict__ query, const float *__restrict__ key, const float *__restrict__ value, const float *__restrict__ mask, float *__restrict__ output) {
  extern __shared__ __align__(16) unsigned char shared[];
  float *const first_data_shared = (float *)(shared + 0);
  float *const first_weight_shared = (float *)(shared + 128);
  float *const data_shared = (float *)(shared + 256);
  float *const weight_shared = (float *)(shared + 512);
  float *const parts = (float *)(shared + 768);
  float largest[1];
  float before[1];
  float rescale[1];
  float total[1];
  float total_scale[1];
  float score[1];
  float score_weight[1];
  float mask_0[1];
  float first_data_frag[1];
  float first_weight_frag[2];
  float first_acc[2];
  float data_frag[1];
  float weight_frag[4];
  float acc[4];
  int block = blockIdx.x;
  const int b_b_2 = block;
  int thread = threadIdx.x;
  const int d_t_4 = thread % 4; thread /= 4;
  const int m_t_3 = thread;
  #pragma unroll
  for (int d_v_5 = 0; d_v_5 < 2; ++d_v_5) {
    #pragma unroll
    for (int d_r_6 = 0; d_r_6 < 2; ++d_r_6) {
      acc[2*d_v_5 + d_r_6] = 0.0f;
    }
  }
  largest[0] = -3.4028235e38f;
  total[0] = 0.0f;
  {
    int e0 = d_t_4;
    const int x2_8 = e0 % 4; e0 /= 4;
    e0 += m_t_3;
    const int x1_7 = e0;
    first_data_shared[x1_7 + 8*x2_8] = (x1_7 < 6 ? query[24*b_b_2 + 4*x1_7 + x2_8] : 0.0f);
  }
  #pragma unroll 1
  for (int n_0_9 = 0; n_0_9 < 3; ++n_0_9) {
    #pragma unroll
    for (int n_v_10 = 0; n_v_10 < 2; ++n_v_10) {
      first_acc[n_v_10] = 0.0f;
    }
    {
      int e1 = d_t_4;
      const int x2_12 = e1 % 4; e1 /= 4;
      e1 += m_t_3;
      const int x1_11 = e1;
      first_weight_shared[x1_11 + 8*x2_12] = (8*n_0_9 + x1_11 < 22 ? key[88*b_b_2 + 32*n_0_9 + 4*x1_11 + x2_12] : 0.0f);
    }
    __syncthreads();
    #pragma unroll 1
    for (int k_1_13 = 0; k_1_13 < 4; ++k_1_13) {
      first_data_frag[0] = first_data_shared[m_t_3 + 8*k_1_13];
      #pragma unroll
      for (int n_v_14 = 0; n_v_14 < 2; ++n_v_14) {
        first_weight_frag[n_v_14] = first_weight_shared[d_t_4 + 8*k_1_13 + 4*n_v_14];
      }
      #pragma unroll
      for (int n_v_15 = 0; n_v_15 < 2; ++n_v_15) {
        first_acc[n_v_15] = first_acc[n_v_15] + (first_data_frag[0] * first_weight_frag[n_v_15]);
      }
    }
    before[0] = largest[0];
    if ((unsigned)(8*n_0_9 + -15) < 2u) {
      #pragma unroll
      for (int n_v_16 = 0; n_v_16 < 2; ++n_v_16) {
        if ((unsigned)(d_t_4 + 8*n_0_9 + 4*n_v_16 + -22) < 2u) {
          first_acc[n_v_16] = (-__uint_as_float(0x7f800000u));
        }
      }
    }
    #pragma unroll
    for (int n_v_17 = 0; n_v_17 < 2; ++n_v_17) {
      score[0] = first_acc[n_v_17];
      mask_0[0] = (d_t_4 + 8*n_0_9 + 4*n_v_17 < 22 ? mask[d_t_4 + 8*n_0_9 + 4*n_v_17] : 0.0f);
      largest[0] = fmaxf(largest[0], ((score[0] * 0.5f) + mask_0[0]));
      first_acc[n_v_17] = ((score[0] * 0.5f) + mask_0[0]);
    }
    parts[4*m_t_3 + d_t_4] = largest[0];
    __syncthreads();
    largest[0] = (-__uint_as_float(0x7f800000u));
    #pragma unroll
    for (int x_18 = 0; x_18 < 4; ++x_18) {
      largest[0] = fmaxf(largest[0], parts[4*m_t_3 + x_18]);
    }
    rescale[0] = f_exp1((before[0] - largest[0]));
    total[0] = (total[0] * rescale[0]);
    #pragma unroll
    for (int d_v_19 = 0; d_v_19 < 2; ++d_v_19) {
      #pragma unroll
      for (int d_r_20 = 0; d_r_20 < 2; ++d_r_20) {
        acc[2*d_v_19 + d_r_20] = (acc[2*d_v_19 + d_r_20] * rescale[0]);
      }
    }
    #pragma unroll
    for (int n_v_21 = 0; n_v_21 < 2; ++n_v_21) {
      score_weight[0] = f_exp1((first_acc[n_v_21] - largest[0]));
      total[0] = total[0] + score_weight[0];
      data_shared[m_t_3 + 8*d_t_4 + 32*n_v_21] = score_weight[0];
    }
    #pragma unroll
    for (int n_c_22 = 0; n_c_22 < 2; ++n_c_22) {
      #pragma unroll
      for (int i_23 = 0; i_23 < 2; ++i_23) {
        {
          int e2 = 4*m_t_3 + d_t_4;
          const int x2_25 = e2 % 16; e2 /= 16;
          const int y_26 = e2;
          weight_shared[32*i_23 + x2_25 + 16*y_26] = (8*n_0_9 + 4*n_c_22 + 2*i_23 + y_26 < 22 && x2_25 < 10 ? value[220*b_b_2 + 80*n_0_9 + 40*n_c_22 + 20*i_23 + x2_25 + 10*y_26] : 0.0f);
        }
      }
      __syncthreads();
      #pragma unroll 1
      for (int n_1_27 = 0; n_1_27 < 4; ++n_1_27) {
        data_frag[0] = data_shared[m_t_3 + 32*n_c_22 + 8*n_1_27];
        #pragma unroll
        for (int d_v_28 = 0; d_v_28 < 2; ++d_v_28) {
          const float2 x3 = *(const float2 *)(weight_shared + 2*d_t_4 + 16*n_1_27 + 8*d_v_28);
          weight_frag[2*d_v_28] = x3.x;
          weight_frag[2*d_v_28 + 1] = x3.y;
        }
        #pragma unroll
        for (int d_v_30 = 0; d_v_30 < 2; ++d_v_30) {
          #pragma unroll
          for (int d_r_31 = 0; d_r_31 < 2; ++d_r_31) {
            acc[2*d_v_30 + d_r_31] = acc[2*d_v_30 + d_r_31] + (data_frag[0] * weight_frag[2*d_v_30 + d_r_31]);
          }
        }
      }
      __syncthreads();
    }
  }
  parts[4*m_t_3 + d_t_4] = total[0];
  __syncthreads();
  total[0] = 0.0f;
  #pragma unroll
  for (int x_32 = 0; x_32 < 4; ++x_32) {
    total[0] = total[0] + parts[4*m_t_3 + x_32];
  }
  total_scale[0] = (1.0f / total[0]);
  #pragma unroll
  for (int d_v_33 = 0; d_v_33 < 2; ++d_v_33) {
    #pragma unroll
    for (int d_r_34 = 0; d_r_34 < 2; ++d_r_34) {
      acc[2*d_v_33 + d_r_34] = (acc[2*d_v_33 + d_r_34] * total_scale[0]);
    }
  }
  #pragma unroll
  for (int d_v_35 = 0; d_v_35 < 2; ++d_v_35) {
    if (m_t_3 < 6 && 2*d_t_4 + 8*d_v_35 < 10) {
      *(float2 *)(output + 60*b_b_2 + 10*m_t_3 + 2*d_t_4 + 8*d_v_35) = make_float2(acc[2*d_v_35], acc[2*d_v_35 + 1]);
    }
  }
}
