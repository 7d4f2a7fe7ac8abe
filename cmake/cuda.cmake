# SPDX-License-Identifier: Apache-2.0
#
# libebb_cuda.so, the plug-in of the backend cuda, where a toolkit (CUDA 12 or later, with nvcc, cuBLASLt and cuDNN 9)
# is; elsewhere one line of notice says what is missing, and all else builds. EBB_CUDA=ON makes that an error, OFF does
# not look. ONLY builds nothing else, and needs no package but the toolkit. The C files of src/backend/cuda need the
# toolkit's headers only, and are what the tests link over their fake of the runtime.
#
# FAKE makes a plug-in of the same C files over that fake, for rehearsals without a GPU (make dry-cuda); what it computes
# is right, and what it says of times and bytes is made up.
set(EBB_CUDA AUTO CACHE STRING "Build the plug-in of the backend cuda: ON, OFF, ONLY it, FAKE, or AUTO: where a toolkit is")
set_property(CACHE EBB_CUDA PROPERTY STRINGS AUTO ON OFF ONLY FAKE)
set(ebb_cuda_found FALSE)
if(NOT EBB_CUDA)
  return()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/nvidia.cmake)
ebb_watch(/usr/local/cuda*/bin/nvcc /usr/bin/nvcc)

# The first thing that is missing, or "".
function(ebb_find_cuda missing_out)
  set(${missing_out} "the CUDA toolkit (12 or later)" PARENT_SCOPE)
  find_package(CUDAToolkit 12 QUIET)
  if(NOT CUDAToolkit_FOUND)
    return()
  endif()
  set(${missing_out} "cuBLASLt" PARENT_SCOPE)
  ebb_find_vendor(CUBLASLT cublasLt.h cublasLt ${CUDAToolkit_VERSION_MAJOR})
  if(NOT CUBLASLT_INCLUDE_DIR OR NOT CUBLASLT_LIBRARY)
    return()
  endif()
  set(${missing_out} "cuDNN 9" PARENT_SCOPE)
  ebb_find_vendor(CUDNN cudnn_backend.h cudnn 9)
  if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
    return()
  endif()
  set(${missing_out} "nvcc" PARENT_SCOPE)
  if(NOT CUDAToolkit_NVCC_EXECUTABLE)
    return()
  endif()
  # Tried apart, since a toolkit that is too old for the system's compiler would end all of the configuration.
  set(${missing_out} "a compiler that nvcc can work with" PARENT_SCOPE)
  set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    return()
  endif()
  set(${missing_out} "" PARENT_SCOPE)
endfunction()

ebb_find_cuda(missing)
if(missing)
  if(EBB_CUDA STREQUAL "AUTO")
    message(NOTICE "${missing} was not found: the backend cuda is left out")
    return()
  endif()
  message(FATAL_ERROR "EBB_CUDA is ${EBB_CUDA}, and ${missing} was not found")
endif()
# find_package's targets are this folder's; the function's scope had them too, its variables it kept.
find_package(CUDAToolkit 12 QUIET REQUIRED)
set(ebb_cuda_includes ${CUDAToolkit_INCLUDE_DIRS} ${CUBLASLT_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR})

# Machine code for each generation that this toolkit knows, and PTX of the last for those to come. Builds with
# sanitizers never meet a GPU: for them PTX alone, which compiles in a fraction of the time.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} --list-gpu-arch OUTPUT_VARIABLE known)
  set(CMAKE_CUDA_ARCHITECTURES 90-virtual)
  foreach(arch 90 89 86 80 75 70)
    if(known MATCHES "compute_${arch}" AND NOT EBB_SANITIZE AND EBB_DEBUG EQUAL 0)
      list(PREPEND CMAKE_CUDA_ARCHITECTURES ${arch}-real)
    endif()
  endforeach()
endif()
set(CMAKE_CUDA_STANDARD 17)
enable_language(CUDA)
set(ebb_cuda_found TRUE)

file(GLOB ebb_cuda_sources CONFIGURE_DEPENDS src/backend/cuda/*.c)
# What it uses of base/, graph/ and backend/ is compiled once more: it links no libebb (src/backend/plugin.h).
list(APPEND ebb_cuda_sources src/base/dtype.c src/base/mem.c src/base/rng.c src/base/thread.c src/base/units.c src/base/utf8.c
     src/graph/graph.c src/backend/dropout_mask.c src/backend/kernel_check.c src/backend/work.c)

# The plug-in of these sources and more, as it is loaded.
function(ebb_add_plugin)
  add_library(ebb_cuda MODULE ${ebb_cuda_sources} ${ARGN})
  target_include_directories(ebb_cuda PRIVATE include src)
  target_include_directories(ebb_cuda SYSTEM PRIVATE ${ebb_cuda_includes})
  target_compile_options(ebb_cuda PRIVATE $<$<COMPILE_LANGUAGE:C>:-ffunction-sections>)
  target_link_options(ebb_cuda PRIVATE -Wl,--gc-sections
                      -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libebb_cuda.map)
  if(NOT EBB_SANITIZE)
    target_link_options(ebb_cuda PRIVATE -Wl,--no-undefined)
  endif()
  target_link_libraries(ebb_cuda PRIVATE Threads::Threads m)
  set_target_properties(ebb_cuda PROPERTIES LINKER_LANGUAGE C LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/libebb_cuda.map)
endfunction()

if(EBB_CUDA STREQUAL "FAKE")
  file(GLOB fake_sources CONFIGURE_DEPENDS tests/fake_cuda/*.c)
  ebb_add_plugin(${fake_sources})
  target_include_directories(ebb_cuda PRIVATE tests/fake_cuda)
  return()
endif()

# nvcc has options of its own: none of the C files' are for it.
file(GLOB ebb_cuda_kernels CONFIGURE_DEPENDS src/backend/cuda/*.cu)
add_library(ebb_cuda_kernels OBJECT ${ebb_cuda_kernels})
target_include_directories(ebb_cuda_kernels PRIVATE include src)
set(kernel_options -fvisibility=hidden -Wall -Wextra --expt-relaxed-constexpr)
if(EBB_WERROR)
  list(APPEND kernel_options --Werror=all-warnings -Xcompiler=-Werror)
endif()
set_target_properties(ebb_cuda_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON COMPILE_OPTIONS "${kernel_options}"
                      CUDA_STANDARD 17)

ebb_add_plugin($<TARGET_OBJECTS:ebb_cuda_kernels>)
target_link_libraries(ebb_cuda PRIVATE CUDA::cudart ${CUBLASLT_LIBRARY} ${CUDNN_LIBRARY})
set_target_properties(ebb_cuda PROPERTIES CUDA_RUNTIME_LIBRARY None INSTALL_RPATH_USE_LINK_PATH ON)
