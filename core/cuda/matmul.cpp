#include "core/cuda/matmul.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/cuda/error.h"

namespace tandem::cuda {
namespace {

constexpr int kCandidates = 16;
constexpr int kRepetitions = 3;
/// What another candidate must gain on the library's own first choice: less is noise, and would
/// make runs differ in their last bits for nothing.
constexpr float kWorthwhile = 0.97f;

cudaDataType_t data_type(DType type) {
  switch (type) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      throw InternalError("the cuda device multiplies fp32, bf16 and fp16, not " +
                          std::string(name_of(type)));
  }
}

cublasComputeType_t compute_type(const MatmulDescription& description) {
  return description.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasOperation_t operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

cublasLtEpilogue_t native(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kGeluAux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluAuxBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kDGelu:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kBiasGradB:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// cuBLASLt's descriptors are opaque pointers with a create and a destroy function each.
template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_ != nullptr) {
      kDestroy(handle_);
    }
  }
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using LtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using BlasHandle = Owned<cublasHandle_t, cublasDestroy>;

template <typename T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_status(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check_status(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

Layout make_layout(DType type, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
  Layout layout;
  check_status(
      cublasLtMatrixLayoutCreate(layout.out(), data_type(type), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(columns), ld),
      "cublasLtMatrixLayoutCreate");
  return layout;
}

struct Plan {
  Operation operation;
  Layout a, b, d;
  std::optional<cublasLtMatmulAlgo_t> algorithm;  ///< none: the library has none
};

Plan make_plan(const MatmulDescription& want) {
  Plan plan{.operation = {},
            .a = want.transpose_a ? make_layout(want.input, want.k, want.m, want.lda)
                                  : make_layout(want.input, want.m, want.k, want.lda),
            .b = want.transpose_b ? make_layout(want.input, want.n, want.k, want.ldb)
                                  : make_layout(want.input, want.k, want.n, want.ldb),
            .d = make_layout(want.output, want.m, want.n, want.ldd),
            .algorithm = std::nullopt};
  check_status(cublasLtMatmulDescCreate(plan.operation.out(), compute_type(want), CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, operation(want.transpose_a));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, operation(want.transpose_b));
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, native(want.epilogue));
  if (want.ld_aux > 0) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, want.ld_aux);
  }
  if (want.sm_count > 0) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{want.sm_count});
  }
  return plan;
}

/// Bias and aux are part of the operation, not of the call.
void point(const Plan& plan, const MatmulOperands& operands) {
  if (operands.bias != nullptr) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  if (operands.aux != nullptr) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  }
}

/// Memory that a candidate may write while it is timed. In the order of the stream: cudaFree would
/// wait for the whole device, where a collective may wait for a peer.
class Scratch {
 public:
  Scratch(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (cudaMallocAsync(&memory_, bytes, stream) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      memory_ = nullptr;
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (memory_ != nullptr) {
      report_status(cudaFreeAsync(memory_, stream_), "cudaFreeAsync (matmul tuning)");
    }
  }
  void* get() const { return memory_; }

 private:
  cudaStream_t stream_;
  void* memory_ = nullptr;
};

class Timer {
 public:
  Timer() {
    for (cudaEvent_t& event : events_) {
      check_status(cudaEventCreate(&event), "cudaEventCreate (matmul tuning)");
    }
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    for (cudaEvent_t event : events_) {
      report_status(cudaEventDestroy(event), "cudaEventDestroy (matmul tuning)");
    }
  }
  /// Milliseconds of what `work` queues.
  template <typename Work>
  float time(cudaStream_t stream, const Work& work) {
    check_status(cudaEventRecord(events_[0], stream), "cudaEventRecord");
    work();
    check_status(cudaEventRecord(events_[1], stream), "cudaEventRecord");
    check_status(cudaEventSynchronize(events_[1]), "cudaEventSynchronize (matmul tuning)");
    float elapsed = 0.0f;
    check_status(cudaEventElapsedTime(&elapsed, events_[0], events_[1]), "cudaEventElapsedTime");
    return elapsed;
  }

 private:
  std::array<cudaEvent_t, 2> events_{};
};

}  // namespace

class Matmul::Library {
 public:
  Library() {
    check_status(cublasLtCreate(lt_.out()), "cublasLtCreate");
    // Now: it takes memory, which in a step may wait for the kernels of other ranks.
    check_status(cublasCreate(blas_.out()), "cublasCreate");
    // As the mask of candidates(): no partial sums in D's type.
    constexpr int kMath = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    check_status(cublasSetMathMode(blas_.get(), static_cast<cublasMath_t>(kMath)),
                 "cublasSetMathMode");
  }

  bool run(CudaStream& stream, const MatmulCall& call) {
    auto found = plans_.find(call.description);
    if (found == plans_.end()) {
      Plan plan = make_plan(call.description);
      point(plan, call.operands);  // before anything is asked about the operation
      const auto [tuned, first] = tuned_.try_emplace(tuning_class(call.description));
      if (first || !adopt(tuned->second, plan)) {
        tune(stream, call, plan);
        tuned->second = plan.algorithm;
      }
      found = plans_.emplace(call.description, std::move(plan)).first;
    }
    const Plan& plan = found->second;
    if (plan.algorithm) {
      point(plan, call.operands);
      const cublasStatus_t status = multiply(stream, call, plan, *plan.algorithm, call.operands.d);
      if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
        check_status(status, "cublasLtMatmul", call.description.to_string());
      }
      return true;
    }
    if (call.description.epilogue != Epilogue::kNone) {
      return false;
    }
    multiply_plainly(stream, call);
    return true;
  }

 private:
  /// D is written to `d`; C, where it is added, is the call's own.
  cublasStatus_t multiply(CudaStream& stream, const MatmulCall& call, const Plan& plan,
                          const cublasLtMatmulAlgo_t& algorithm, void* d) {
    const float one = 1.0f, beta = call.description.accumulate ? 1.0f : 0.0f;
    return cublasLtMatmul(lt_.get(), plan.operation.get(), &one, call.operands.a, plan.a.get(),
                          call.operands.b, plan.b.get(), &beta, call.operands.d, plan.d.get(), d,
                          plan.d.get(), &algorithm, stream.workspace(), kWorkspaceBytes,
                          stream.native());
  }

  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const MatmulDescription& want,
                                                          const Plan& plan) {
    Preference preference;
    check_status(cublasLtMatmulPreferenceCreate(preference.out()),
                 "cublasLtMatmulPreferenceCreate");
    const auto alignment = [](int bytes) { return static_cast<std::uint32_t>(bytes); };
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(want.alignment_a));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(want.alignment_b));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(want.alignment_d));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(want.alignment_d));
    // Partial sums of a split contraction stay in the compute type: never rounded to D's and added.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidates);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        lt_.get(), plan.operation.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
        preference.get(), kCandidates, results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
      count = 0;  // no algorithm for these types, strides or this epilogue
    } else {
      check_status(status, "cublasLtMatmulAlgoGetHeuristic", want.to_string());
    }
    results.resize(static_cast<std::size_t>(count));
    std::erase_if(results, [](const cublasLtMatmulHeuristicResult_t& result) {
      return result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes;
    });
    return results;
  }

  /// Takes the algorithm that another product of the class was tuned to, if it can do this one.
  bool adopt(const std::optional<cublasLtMatmulAlgo_t>& tuned, Plan& plan) {
    cublasLtMatmulHeuristicResult_t result{};
    if (!tuned ||
        cublasLtMatmulAlgoCheck(lt_.get(), plan.operation.get(), plan.a.get(), plan.b.get(),
                                plan.d.get(), plan.d.get(), &*tuned,
                                &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > kWorkspaceBytes) {
      return false;
    }
    plan.algorithm = tuned;
    return true;
  }

  void tune(CudaStream& stream, const MatmulCall& call, Plan& plan) {
    const auto results = candidates(call.description, plan);
    if (results.empty()) {
      return;
    }
    plan.algorithm = results.front().algo;
    // Without accumulation the real output may be written again and again: its inputs stay. With it
    // the sum must be made once, so candidates write elsewhere, at the real beta.
    std::optional<Scratch> scratch;
    void* d = call.operands.d;
    if (call.description.accumulate) {
      scratch.emplace(static_cast<std::size_t>(call.description.ldd * call.description.n) *
                          size_of(call.description.output),
                      stream.native());
      d = scratch->get();
      if (d == nullptr) {
        return;  // no memory to time with: the library's own first choice
      }
    }
    Timer timer;
    float best = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto& algorithm = results[i].algo;
      if (multiply(stream, call, plan, algorithm, d) != CUBLAS_STATUS_SUCCESS) {
        continue;
      }
      cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
      const float elapsed = timer.time(stream.native(), [&] {
        for (int r = 0; r < kRepetitions && status == CUBLAS_STATUS_SUCCESS; ++r) {
          status = multiply(stream, call, plan, algorithm, d);
        }
      });
      if (status == CUBLAS_STATUS_SUCCESS && elapsed < best * (i == 0 ? 1.0f : kWorthwhile)) {
        best = elapsed;
        plan.algorithm = algorithm;
      }
    }
    if (best == std::numeric_limits<float>::infinity()) {
      plan.algorithm.reset();  // the library offered what it does not run
    }
  }

  void multiply_plainly(CudaStream& stream, const MatmulCall& call) {
    const MatmulDescription& want = call.description;
    check_status(cublasSetStream(blas_.get(), stream.native()), "cublasSetStream");
    check_status(cublasSetWorkspace(blas_.get(), stream.workspace(), kWorkspaceBytes),
                 "cublasSetWorkspace");
    const auto small = [](std::int64_t size) {
      ensure(size <= std::numeric_limits<int>::max(), "a matrix is too large for cublasGemmEx");
      return static_cast<int>(size);
    };
    const float one = 1.0f, beta = want.accumulate ? 1.0f : 0.0f;
    const cublasStatus_t status = cublasGemmEx(
        blas_.get(), operation(want.transpose_a), operation(want.transpose_b), small(want.m),
        small(want.n), small(want.k), &one, call.operands.a, data_type(want.input), small(want.lda),
        call.operands.b, data_type(want.input), small(want.ldb), &beta, call.operands.d,
        data_type(want.output), small(want.ldd), compute_type(want), CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
      check_status(status, "cublasGemmEx", want.to_string());
    }
  }

  LtHandle lt_;
  BlasHandle blas_;
  std::map<MatmulDescription, Plan> plans_;
  std::map<MatmulDescription, std::optional<cublasLtMatmulAlgo_t>> tuned_;  ///< by tuning_class
};

Matmul::Matmul() : library_(std::make_unique<Library>()) {}
Matmul::~Matmul() = default;

bool Matmul::run(CudaStream& stream, const MatmulCall& call) { return library_->run(stream, call); }

std::string Matmul::version() {
  const std::size_t v = cublasLtGetVersion();  // 130002: 13.0.2
  return "cuBLASLt " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

}  // namespace tandem::cuda
