// For core/cuda/error.h, which also checks the calls of cuBLAS.
#pragma once

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0 };
