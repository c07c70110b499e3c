// What a process finds of GPUs, and in which words it says what is missing.
#include "parallel/cuda_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tandem::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FindCuda : public ::testing::Test {
 protected:
  ~FindCuda() override {
    unsetenv("FAKE_GPUS");
    unsetenv("FAKE_DRIVER_ERROR");
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  static void gpus(const char* count) { setenv("FAKE_GPUS", count, 1); }
  static CudaFound find(const std::string& module) {
    return find_cuda({.driver = TANDEM_FAKE_DRIVER, .module = module});
  }
};

TEST_F(FindCuda, SaysThatThereIsNoDriver) {
  const CudaFound found =
      find_cuda({.driver = "libno_such_driver.so.1", .module = TANDEM_FAKE_MODULE});
  EXPECT_EQ(found.module, nullptr);
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_THAT(found.missing,
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libno_such_driver.so.1")));
}

TEST_F(FindCuda, RepeatsTheDriversWords) {
  setenv("FAKE_DRIVER_ERROR", "100", 1);
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  gpus("2");
  const CudaFound found = find(TANDEM_FAKE_MODULE);
  EXPECT_EQ(found.module, nullptr);
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_THAT(found.missing, AllOf(HasSubstr("no CUDA-capable device is detected"),
                                   HasSubstr("100"), HasSubstr("CUDA_VISIBLE_DEVICES is \"7\"")));
}

TEST_F(FindCuda, SaysThatNoGpuIsVisible) {
  const CudaFound found = find(TANDEM_FAKE_MODULE);
  EXPECT_EQ(found.module, nullptr);
  EXPECT_THAT(found.missing, HasSubstr("shows this process no GPU"));
}

TEST_F(FindCuda, NamesTheModuleThatIsNotThere) {
  gpus("1");
  const CudaFound found = find("/nowhere/libtandem_cuda.so");
  EXPECT_EQ(found.gpus.size(), 1u) << "the GPU is there all the same";
  EXPECT_EQ(found.module, nullptr);
  EXPECT_THAT(found.missing,
              AllOf(HasSubstr("/nowhere/libtandem_cuda.so"), HasSubstr("-DTANDEM_CUDA=ON")));
}

TEST_F(FindCuda, RefusesALibraryThatIsNoModule) {
  gpus("1");
  EXPECT_THROW(find(TANDEM_FAKE_DRIVER), ConfigError);
}

TEST_F(FindCuda, RefusesAModuleOfAnotherVersion) {
  gpus("1");
  try {
    find(TANDEM_FAKE_OLD_MODULE);
    FAIL() << "it is taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(TANDEM_FAKE_OLD_MODULE),
                      HasSubstr("interface version " + std::to_string(kCudaModuleVersion - 1)),
                      HasSubstr("needs version " + std::to_string(kCudaModuleVersion))));
  }
}

TEST_F(FindCuda, GivesTheModuleAndTellsTheGpusApart) {
  gpus("3");
  const CudaFound found = find(TANDEM_FAKE_MODULE);
  ASSERT_NE(found.module, nullptr);
  EXPECT_EQ(found.missing, "");
  ASSERT_EQ(found.gpus.size(), 3u);
  EXPECT_EQ(found.gpus[1], "02020202020202020202020202020202");
  EXPECT_NE(found.gpus[0], found.gpus[2]);
  EXPECT_FALSE(found.module->make_device({.ordinal = 1})->host_memory());
}

}  // namespace

}  // namespace tandem::test
