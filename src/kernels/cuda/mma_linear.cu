// The tensor core products for nvcc.
#include "kernels/cuda/mma_linear.cu.h"
