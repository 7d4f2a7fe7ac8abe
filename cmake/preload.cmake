# SPDX-License-Identifier: Apache-2.0
#
# libebb_record.so, which `ebb record` preloads into other programs: the recorder of src/preload with what it needs of
# base and trace. It shows nothing but what it stands in front of. A sanitizer has no place in it: the program that it
# is loaded into has none.
file(GLOB preload_sources CONFIGURE_DEPENDS src/preload/*.c)
add_library(ebb_record SHARED ${preload_sources} src/base/demangle.c src/base/demangle_write.c src/base/file.c
            src/base/mem.c src/base/rng.c src/base/status.c src/base/utf8.c src/trace/ranges.c src/trace/trace_tables.c
            src/trace/trace_writer.c)
target_include_directories(ebb_record PRIVATE include src)
target_compile_options(ebb_record PRIVATE -fno-sanitize=all -fno-builtin -ffunction-sections)
target_link_options(ebb_record PRIVATE -fno-sanitize=all -shared-libgcc -Wl,--no-undefined -Wl,--gc-sections
                    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libebb_record.map)
target_link_libraries(ebb_record PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(ebb_record PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/libebb_record.map)
# Its dlsym hands calls on by a jump, which only optimisation makes.
set_source_files_properties(src/preload/preload_real.c PROPERTIES COMPILE_OPTIONS "-O2;-foptimize-sibling-calls")

# Kernels and copies of the program, where CUPTI's headers are; CUPTI itself is looked for when a program runs.
if(NOT DEFINED EBB_CUDA OR EBB_CUDA)
  find_path(CUPTI_INCLUDE_DIR cupti.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include
            PATH_SUFFIXES ../extras/CUPTI/include)
  find_path(CUPTI_CUDA_INCLUDE_DIR cuda.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
endif()
if(CUPTI_INCLUDE_DIR AND CUPTI_CUDA_INCLUDE_DIR)
  set_source_files_properties(src/preload/cuda_activity.c PROPERTIES COMPILE_DEFINITIONS EBB_HAVE_CUPTI COMPILE_OPTIONS
                              "-isystem;${CUPTI_CUDA_INCLUDE_DIR};-isystem;${CUPTI_INCLUDE_DIR}")
else()
  message(NOTICE "CUPTI's headers were not found: ebb record sees no kernels")
endif()
