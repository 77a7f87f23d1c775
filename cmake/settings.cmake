# Flags and helpers shared by every folder.
find_package(Threads REQUIRED)
find_program(CCACHE ccache)
if(CCACHE)
  # Another clone finds what this one compiled.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher} CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  # What nvcc preprocesses is for one of several architectures: files are compared themselves.
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher} CCACHE_DEPEND=1 ${CCACHE})
endif()

add_library(gigaknn_settings INTERFACE)
target_include_directories(gigaknn_settings INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
# No contraction: the canonical distance has one order and one rounding on every compiler and machine.
target_compile_options(gigaknn_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-ffp-contract=off>)
if(GIGAKNN_CUDA)
  # For the first GPUs with cp.async and tensor cores for bytes, for Hopper with what only it has, and, from what the first is made of, for those to come.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # CMake 3.25 knows CUDA to C++17 only: what it calls so is C++20 here.
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA17_STANDARD_COMPILE_OPTION -std=c++20)
  target_compile_options(gigaknn_settings INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-ffp-contract=off -gencode=arch=compute_80,code=[sm_80,compute_80]
    -gencode=arch=compute_90a,code=sm_90a>)
endif()
# clang 19 blames us for a deprecated call inside libstdc++'s own std::stable_sort; g++ keeps the warning.
target_compile_options(gigaknn_settings INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)
if(GIGAKNN_WERROR)
  target_compile_options(gigaknn_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # What Highway's NEON target is compiled with. Else g++ cannot inline its vectors into the members that the
  # compiler writes itself (constructors of structs of vectors).
  target_compile_options(gigaknn_settings INTERFACE -march=armv8-a+crypto)
endif()
if(GIGAKNN_TINY_TILES)
  target_compile_definitions(gigaknn_settings INTERFACE GIGAKNN_TINY_TILES=1)
endif()
if(GIGAKNN_TINY_TILES OR GIGAKNN_SANITIZE STREQUAL "thread")
  # Small work is shared among threads too, which are what these builds are to test.
  target_compile_definitions(gigaknn_settings INTERFACE GIGAKNN_EAGER_THREADS=1)
endif()
if(GIGAKNN_SANITIZE)
  target_compile_definitions(gigaknn_settings INTERFACE GIGAKNN_SANITIZED=1)  # tests of the emulated GPU are smaller
  target_compile_options(gigaknn_settings INTERFACE -fsanitize=${GIGAKNN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(gigaknn_settings INTERFACE -fsanitize=${GIGAKNN_SANITIZE})
  if(GIGAKNN_SANITIZE STREQUAL "thread")
    # Stand-ins for oneTBB that the sanitizer sees through.
    target_include_directories(gigaknn_settings BEFORE INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/tools/tsan>)
  endif()
endif()

# What nearly every file includes is read once. By g++ alone: of what clang precompiled ccache knows nothing in another clone.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(gigaknn_precompiles ON)
  target_compile_options(gigaknn_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
endif()
# gigaknn_precompile(TARGET HEADERS...): these and the usual ones.
function(gigaknn_precompile target)
  if(gigaknn_precompiles)
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex>
      <optional> <span> <sstream> <string> <string_view> <utility> <vector> ${ARGN})
  endif()
endfunction()
# gigaknn_precompile_once(NAME HEADERS...) precompiles them once, for all targets that are compiled alike: gigaknn_reuse_precompiled(NAME TARGET).
function(gigaknn_precompile_once name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE gigaknn_settings)
  gigaknn_precompile(${name} ${ARGN})
endfunction()
function(gigaknn_reuse_precompiled name target)
  if(gigaknn_precompiles)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
# What executables alone link to.
function(gigaknn_compile_as_executable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE)
endfunction()
gigaknn_precompile_once(gigaknn_std)

# One target a folder, which links to the folders on its left and to nothing else:
#   gigaknn_layer(io SOURCES a.cpp b.cpp LINKS gigaknn_core)
function(gigaknn_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(gigaknn_${name} STATIC ${LAYER_SOURCES})
  target_link_libraries(gigaknn_${name} PUBLIC gigaknn_settings ${LAYER_LINKS} PRIVATE ${LAYER_PRIVATE_LINKS})
  gigaknn_reuse_precompiled(gigaknn_std gigaknn_${name})
  # No reader stands in these two: compiled as for the preset tiny, ccache has them.
  if(GIGAKNN_FUZZ AND NOT name MATCHES "^(ops|learn)$")
    target_compile_options(gigaknn_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  set_property(GLOBAL APPEND PROPERTY GIGAKNN_LAYERS gigaknn_${name})
  # What the installed archive needs besides itself (library.cmake).
  foreach(link ${LAYER_LINKS} ${LAYER_PRIVATE_LINKS})
    if(NOT link MATCHES "^gigaknn_")
      set_property(GLOBAL APPEND PROPERTY GIGAKNN_FOREIGN_LINKS ${link})
    endif()
  endforeach()
endfunction()

set(test_seconds 600)
if(CMAKE_CROSSCOMPILING_EMULATOR)
  set(test_seconds 1800)  # under qemu all is up to a hundred times slower
endif()

# gigaknn_test(select_test LINKS gigaknn_ops): GoogleTest program from select_test.cpp beside its source,
# one ctest entry a case.
function(gigaknn_test name)
  if(NOT GIGAKNN_TESTS)
    return()
  endif()
  cmake_parse_arguments(TEST "" "" "LINKS;SOURCES" ${ARGN})
  if(NOT TEST_SOURCES)
    set(TEST_SOURCES ${name}.cpp)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_LINKS} GTest::gtest_main)
  gigaknn_reuse_precompiled(gigaknn_gtest ${name})
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
    PROPERTIES TIMEOUT ${test_seconds})
endfunction()

if(GIGAKNN_TESTS)
  enable_testing()
  include(GoogleTest)
  find_package(GTest REQUIRED)
  gigaknn_precompile_once(gigaknn_gtest <gtest/gtest.h>)
  target_link_libraries(gigaknn_gtest PRIVATE GTest::gtest)
  gigaknn_compile_as_executable(gigaknn_gtest)
endif()

# Kernel files are CUDA; every compiler but nvcc takes them for C++ (simt.cuh).
function(gigaknn_kernel_sources)
  if(NOT GIGAKNN_CUDA)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
  endif()
endfunction()

# gigaknn_emulated_test(select_rows_test SOURCES gpu/select_rows_test.cu LINKS gigaknn_ops): a test of kernels on the emulated
# GPU. Runs under several orders of lanes, and with work done as late as waits allow.
add_custom_target(emulated_tests)
function(gigaknn_emulated_test name)
  if(NOT GIGAKNN_TESTS)
    return()
  endif()
  cmake_parse_arguments(TEST "" "" "LINKS;SOURCES" ${ARGN})
  if(NOT TEST_SOURCES)
    set(TEST_SOURCES ${name}.cpp)
  endif()
  gigaknn_kernel_sources(${TEST_SOURCES})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_LINKS} GTest::gtest_main)
  gigaknn_reuse_precompiled(gigaknn_gtest ${name})
  add_dependencies(emulated_tests ${name})
  if(GIGAKNN_CUDA)
    add_test(NAME ${name}.cuda COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name}.cuda PROPERTIES LABELS gpu TIMEOUT 600)
    return()
  endif()
  set(seeds 0 1 2 3)  # ascending, descending, random twice
  set(seconds 600)
  if(GIGAKNN_SANITIZE MATCHES "address" AND NOT GIGAKNN_TINY_TILES)
    set(seeds 3)  # what is out of bounds is so in every order
    set(seconds 1200)  # real tiles, each thread's stack watched after returns
  endif()
  foreach(seed ${seeds})
    add_test(NAME ${name}.seed_${seed} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name}.seed_${seed} PROPERTIES LABELS emulated TIMEOUT ${seconds} COST 50)
  endforeach()
  list(REMOVE_ITEM seeds 0)
  set(warpgroups 0 1 2 2)  # scans: by warps, by warpgroups, streamed
  if(GIGAKNN_SANITIZE MATCHES "address")
    set(warpgroups 0 1 2 1)  # each way by one of the sanitizers of a short check, which runs seed 3 alone
  endif()
  foreach(seed ${seeds})
    list(GET warpgroups ${seed} way)
    set_tests_properties(${name}.seed_${seed} PROPERTIES ENVIRONMENT
      "GIGAKNN_EMULATED_SEED=${seed};GIGAKNN_EMULATED_LATE=1;GIGAKNN_WARPGROUPS=${way}")
  endforeach()
endfunction()
