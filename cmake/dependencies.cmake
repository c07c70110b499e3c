# Every outside library, found once. Each is from the system's packages; scripts/install_deps.sh
# names the package of each.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(dnnl REQUIRED CONFIG)  # Debian's package configuration also asks for OpenCL
find_package(hwy REQUIRED CONFIG)
find_package(MPI 3.0 REQUIRED COMPONENTS C)
find_package(yaml-cpp REQUIRED CONFIG)
find_package(fmt REQUIRED CONFIG)
find_package(spdlog REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(GTest REQUIRED)

set(TANDEM_HAVE_CUDA OFF)
if(NOT TANDEM_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND)
    set(TANDEM_HAVE_CUDA ON)
  elseif(TANDEM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TANDEM_CUDA=ON, but no CUDA toolkit >= 12.4 was found. Set CUDAToolkit_ROOT, or use -DTANDEM_CUDA=OFF.")
  endif()
endif()
