# SPDX-License-Identifier: Apache-2.0
#
# One program a test source, under its own name in the build folder. tools/run-tests runs and counts them;
# ctest can too.
ebb_watch(/usr/lib/*/pkgconfig/cmocka.pc /usr/lib*/pkgconfig/cmocka.pc /usr/local/lib*/pkgconfig/cmocka.pc)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(NOT CMOCKA_FOUND)
  message(NOTICE "cmocka was not found: the tests are left out")
  return()
endif()

add_library(ebb_static STATIC $<TARGET_OBJECTS:ebb_objects>)
target_include_directories(ebb_static PUBLIC include src)
target_link_libraries(ebb_static PUBLIC ${EBB_LINK})

# The tests that start threads: the target threaded_tests builds them, and the file threaded_tests of the build folder
# has their paths, for the thread sanitizer (tools/test-suite). tests/threads.c makes a program that is missing here fail.
set(ebb_threaded_tests
    test_ahead test_best test_best_hands test_comparison test_comparison_oom test_conformance_dry test_conformance_ref test_cuda_capture test_cuda_conformance test_cuda_conformance_own
    test_cuda_failures test_cuda_kernel_bits test_cuda_memory test_cuda_run_bits test_data test_device
    test_host_copy test_host_stream test_image_decode test_iteration_zoo test_measure test_measure_copies test_misuse test_pool test_pool_prop test_ports
    test_record test_remote test_run test_run_bits test_run_bytes test_run_tiers test_run_valid test_tier_file test_trainer test_trainer_improve
    test_trainer_oom
    test_values)
if(dnnl_FOUND) # without its backend it starts none
  list(APPEND ebb_threaded_tests test_conformance_cpu)
endif()
foreach(is_threaded 0 1)
  add_library(ebb_test_threads_${is_threaded} OBJECT tests/threads.c)
  target_compile_definitions(ebb_test_threads_${is_threaded} PRIVATE EBB_STARTS_THREADS=${is_threaded})
endforeach()

# All tests and nothing else; the plug-in, since a test loads it.
add_custom_target(tests)
if(TARGET ebb_cuda)
  add_dependencies(tests ebb_cuda)
endif()

# Two hundred programs, each with the whole library: these linkers take half the time of the usual one.
include(CheckLinkerFlag)
set(ebb_test_linker "")
foreach(linker lld gold)
  check_linker_flag(C -fuse-ld=${linker} EBB_HAVE_${linker})
  if(EBB_HAVE_${linker})
    set(ebb_test_linker -fuse-ld=${linker})
    break()
  endif()
endforeach()

function(ebb_add_test name)
  add_executable(${name} ${ARGN})
  add_dependencies(tests ${name})
  target_include_directories(${name} PRIVATE tests)
  target_link_libraries(${name} PRIVATE ebb_static PkgConfig::CMOCKA)
  list(FIND ebb_threaded_tests ${name} place)
  if(place EQUAL -1)
    target_link_libraries(${name} PRIVATE ebb_test_threads_0)
  else()
    target_link_libraries(${name} PRIVATE ebb_test_threads_1)
  endif()
  target_link_options(${name} PRIVATE -Wl,--wrap=pthread_create ${ebb_test_linker})
  if(dnnl_FOUND)
    target_compile_definitions(${name} PRIVATE EBB_HAVE_DNNL)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()

# The suite that every backend's program runs.
file(GLOB conformance_sources CONFIGURE_DEPENDS tests/backend/conformance*.c)
add_library(ebb_conformance STATIC ${conformance_sources})
target_link_libraries(ebb_conformance PUBLIC ebb_static PkgConfig::CMOCKA)

# What the preloaded recorder has that stands in front of nothing.
add_library(ebb_preload_parts STATIC src/preload/preload_blocks.c src/preload/preload_memory.c)
target_link_libraries(ebb_preload_parts PUBLIC ebb_static)

# The plug-in of CUDA devices without its entry, over a runtime that needs no GPU (tests/fake_cuda/fake_cuda.h); only
# the toolkit's headers are used.
if(ebb_cuda_found)
  file(GLOB fake_sources CONFIGURE_DEPENDS tests/fake_cuda/*.c src/backend/cuda/*.c)
  list(FILTER fake_sources EXCLUDE REGEX "cuda_plugin|fake_plugin|fake_cudnn")
  add_library(ebb_cuda_fake STATIC ${fake_sources})
  add_library(ebb_cudnn_fake OBJECT tests/fake_cuda/fake_cudnn.c)
  target_link_libraries(ebb_cudnn_fake PUBLIC ebb_cuda_fake)
  target_include_directories(ebb_cuda_fake PUBLIC tests/fake_cuda)
  target_include_directories(ebb_cuda_fake SYSTEM PUBLIC ${ebb_cuda_includes})
  target_link_libraries(ebb_cuda_fake PUBLIC ebb_static)
endif()

# The planner's code with a call at the beginning of each basic block, for tests that count work. It has no checks and no
# sanitizer, which would add blocks of their own (ebb_static has the same code with them), so clang would show nothing more.
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  file(GLOB plan_sources CONFIGURE_DEPENDS src/plan/*.c)
  add_library(ebb_plan_counted OBJECT ${plan_sources})
  target_include_directories(ebb_plan_counted PRIVATE include src)
  target_compile_options(ebb_plan_counted PRIVATE -UEBB_DEBUG -DEBB_DEBUG=0 -fno-sanitize=all -fsanitize-coverage=trace-pc)
endif()

file(GLOB test_sources CONFIGURE_DEPENDS tests/*/test_*.c)
foreach(source ${test_sources})
  get_filename_component(name ${source} NAME_WE)
  if(name MATCHES "^test_cuda_" AND NOT ebb_cuda_found)
    continue() # these need the toolkit's headers, no GPU
  endif()
  if(name STREQUAL test_plan_work AND NOT TARGET ebb_plan_counted)
    continue()
  endif()
  ebb_add_test(${name} ${source})
  if(name MATCHES "^test_cuda_")
    target_link_libraries(${name} PRIVATE ebb_cuda_fake ebb_conformance)
    if(name STREQUAL "test_cuda_described") # asks the library itself
      target_link_libraries(${name} PRIVATE ${CUDNN_LIBRARY})
    else()
      target_link_libraries(${name} PRIVATE ebb_cudnn_fake)
    endif()
  endif()
  if(name MATCHES "^test_preload_")
    target_link_libraries(${name} PRIVATE ebb_preload_parts)
  endif()
  if(name MATCHES "^test_place_(large|rules)$") # problems of the benchmark's kinds
    target_sources(${name} PRIVATE bench/place_instances.c)
    target_include_directories(${name} PRIVATE bench)
  endif()
  if(name STREQUAL test_plan_work)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:ebb_plan_counted>)
  endif()
  if(name MATCHES "^test_conformance_")
    target_link_libraries(${name} PRIVATE ebb_conformance)
  endif()
endforeach()

# Makes stored inputs that no text editor can: not a test, and built by name only.
add_executable(make_images EXCLUDE_FROM_ALL tests/fuzz/make_images.c)
target_include_directories(make_images PRIVATE tests)
target_link_libraries(make_images PRIVATE ebb_static PkgConfig::CMOCKA)

# Each fuzz target beside a driver that replays its stored inputs.
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE fuzz_ test_replay_ name ${name})
  ebb_add_test(${name} ${source} tests/fuzz/replay.c)
  string(REPLACE test_replay_ "" target ${name})
  target_compile_definitions(${name} PRIVATE EBB_FUZZ_TARGET="${target}")
endforeach()

# Those of the list that this build has (some need the toolkit of CUDA); each must be a test.
set(threaded_paths)
set(threaded_targets)
foreach(name ${ebb_threaded_tests})
  if(TARGET ${name})
    list(APPEND threaded_paths ${CMAKE_BINARY_DIR}/${name})
    list(APPEND threaded_targets ${name})
  elseif(NOT name MATCHES "^test_cuda_" OR ebb_cuda_found)
    message(FATAL_ERROR "${name} of ebb_threaded_tests (cmake/tests.cmake) is not a test")
  endif()
endforeach()
if(NOT threaded_paths)
  message(FATAL_ERROR "ebb_threaded_tests (cmake/tests.cmake) is empty")
endif()
list(JOIN threaded_paths "\n" threaded_paths)
file(WRITE ${CMAKE_BINARY_DIR}/threaded_tests "${threaded_paths}\n")
add_custom_target(threaded_tests DEPENDS ${threaded_targets})
