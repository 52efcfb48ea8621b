static __device__ __forceinline__ float max1(float a, float b) { return a < b ? b : a; }
// stage compute: 1 blocks of 32 threads
extern "C" __global__ void __launch_bounds__(32) autotune_compute(const float *__restrict__ input, const float *__restrict__ weight1, const float *__restrict__ mid_bias, const float *__restrict__ weight2, float *__restrict__ output) {
  extern __shared__ __align__(16) unsigned char shared[];
  float *const first_data_shared = (float *)(shared + 0);
  float *const first_weight_shared = (float *)(shared + 128);
  float *const data_shared = (float *)(shared + 256);
  float *const weight_shared = (float *)(shared + 512);
  float first_data_frag[1];
  float first_weight_frag[2];
  float first_acc[2];
  float data_frag[1];
  float weight_frag[2];
  float acc[2];
  int block = blockIdx.x;
  int thread = threadIdx.x;
  const int n_t_3 = thread % 4; thread /= 4;
  const int m_t_2 = thread;
  #pragma unroll
  for (int n_v_4 = 0; n_v_4 < 2; ++n_v_4) {
    acc[n_v_4] = 0.0f;
  }
  #pragma unroll 1
  for (int h_0_5 = 0; h_0_5 < 3; ++h_0_5) {
    #pragma unroll
    for (int h_v_6 = 0; h_v_6 < 2; ++h_v_6) {
      first_acc[h_v_6] = 0.0f;
    }
    #pragma unroll 1
    for (int k_0_7 = 0; k_0_7 < 2; ++k_0_7) {
      {
        int e0 = 4*m_t_2 + n_t_3;
        const int x1_9 = e0 % 4; e0 /= 4;
        const int x0_8 = e0;
        first_data_shared[x0_8 + 8*x1_9] = input[4*k_0_7 + 8*x0_8 + x1_9];
      }
      {
        int e1 = 4*m_t_2 + n_t_3;
        const int x1_11 = e1 % 8; e1 /= 8;
        const int x0_10 = e1;
        first_weight_shared[8*x0_10 + x1_11] = (8*h_0_5 + x1_11 < 20 ? weight1[8*h_0_5 + 80*k_0_7 + 20*x0_10 + x1_11] : 0.0f);
      }
      __syncthreads();
      #pragma unroll 1
      for (int k_1_12 = 0; k_1_12 < 4; ++k_1_12) {
        first_data_frag[0] = first_data_shared[m_t_2 + 8*k_1_12];
        #pragma unroll
        for (int h_v_13 = 0; h_v_13 < 2; ++h_v_13) {
          first_weight_frag[h_v_13] = first_weight_shared[n_t_3 + 8*k_1_12 + 4*h_v_13];
        }
        #pragma unroll
        for (int h_v_14 = 0; h_v_14 < 2; ++h_v_14) {
          first_acc[h_v_14] = first_acc[h_v_14] + (first_data_frag[0] * first_weight_frag[h_v_14]);
        }
      }
      __syncthreads();
    }
    #pragma unroll
    for (int h_v_15 = 0; h_v_15 < 2; ++h_v_15) {
      data_shared[m_t_2 + 8*n_t_3 + 32*h_v_15] = (n_t_3 + 8*h_0_5 + 4*h_v_15 < 20 ? max1((first_acc[h_v_15] + mid_bias[n_t_3 + 8*h_0_5 + 4*h_v_15]), 0.0f) : 0.0f);
    }
    #pragma unroll
    for (int i_16 = 0; i_16 < 2; ++i_16) {
      {
        int e2 = 4*m_t_2 + n_t_3;
        const int x1_18 = e2 % 8; e2 /= 8;
        const int y_19 = e2;
        {
          int e3 = 4*i_16 + y_19;
          const int x0_17 = e3;
          weight_shared[8*x0_17 + x1_18] = (8*h_0_5 + x0_17 < 20 && x1_18 < 7 ? weight2[56*h_0_5 + 7*x0_17 + x1_18] : 0.0f);
        }
      }
    }
    __syncthreads();
    #pragma unroll 1
    for (int h_1_20 = 0; h_1_20 < 8; ++h_1_20) {
      data_frag[0] = data_shared[m_t_2 + 8*h_1_20];
      #pragma unroll
      for (int n_v_21 = 0; n_v_21 < 2; ++n_v_21) {
        weight_frag[n_v_21] = weight_shared[n_t_3 + 8*h_1_20 + 4*n_v_21];
      }
      #pragma unroll
      for (int n_v_22 = 0; n_v_22 < 2; ++n_v_22) {
        acc[n_v_22] = acc[n_v_22] + (data_frag[0] * weight_frag[n_v_22]);
      }
    }
  }
  #pragma unroll
  for (int n_v_23 = 0; n_v_23 < 2; ++n_v_23) {
    if (n_t_3 + 4*n_v_23 < 7) {
      output[7*m_t_2 + n_t_3 + 4*n_v_23] = acc[n_v_23];
    }
  }
}
