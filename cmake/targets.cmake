# What every target of ours shares: include root, warnings, sanitizer.
add_library(tandem_options INTERFACE)
target_include_directories(tandem_options INTERFACE ${CMAKE_SOURCE_DIR})
# Argument structs are filled by designated initializers; fields left out have defaults.
set(TANDEM_WARNINGS -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  # GCC 12 sees overlap in `"text" + std::string` where there is none (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${TANDEM_WERROR}>:-Werror>
  # Bits of a kernel must not depend on whether the compiler fused a multiply and an add.
  -ffp-contract=off)
target_compile_options(tandem_options INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wpedantic;${TANDEM_WARNINGS}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;$<$<BOOL:${TANDEM_WERROR}>:-Werror=all-warnings>;-Xcompiler=$<JOIN:${TANDEM_WARNINGS},$<COMMA>>>")
target_compile_definitions(tandem_options INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(tandem_options INTERFACE Threads::Threads)
if(TANDEM_SANITIZE)
  target_compile_options(tandem_options INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(tandem_options INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()

# A test that starts processes by mpirun carries the label mpi. Open MPI leaks at exit: its frames are
# only found by the slow unwinder, and suppressed.
function(tandem_mark_mpi test)
  set_tests_properties(${test} PROPERTIES LABELS mpi)
  if(TANDEM_SANITIZE STREQUAL "address")
    set_tests_properties(${test} PROPERTIES ENVIRONMENT
      "ASAN_OPTIONS=fast_unwind_on_malloc=0;LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0")
  endif()
endfunction()

# tandem_test(NAME SOURCES... [LIBRARIES ...] [RANKS n...]): one GoogleTest program. With RANKS the
# test runs under mpirun once for each n; a launch that cannot start its ranks fails.
function(tandem_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES;RANKS" ${ARGN})
  if(arg_RANKS AND NOT TANDEM_MPI)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE tandem_options tandem_test_support ${arg_LIBRARIES} GTest::gtest GTest::gmock)
  if(arg_RANKS)
    foreach(ranks ${arg_RANKS})
      add_test(NAME ${name}.np${ranks} COMMAND ${CMAKE_SOURCE_DIR}/scripts/mpirun.sh ${ranks} $<TARGET_FILE:${name}>)
      set_tests_properties(${name}.np${ranks} PROPERTIES TIMEOUT 300 PROCESSORS 2)
      tandem_mark_mpi(${name}.np${ranks})
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600)
  endif()
endfunction()
