# SPDX-License-Identifier: Apache-2.0
#
# Where cuBLASLt and cuDNN are: in the toolkit, in the packages `nvidia` of this machine's Pythons (tools/find-nvidia), or
# in the system's folders.

# NAME_LIBRARY, and NAME_INCLUDE_DIR with the header, beside the library if it lies there. Python's packages have the
# library under its versioned name only.
function(ebb_find_vendor name header library version)
  execute_process(COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tools/find-nvidia OUTPUT_VARIABLE packages
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" packages "${packages}")
  set(folders)
  foreach(package ${packages})
    list(APPEND folders ${package}/cudnn ${package}/cu${CUDAToolkit_VERSION_MAJOR} ${package}/cublas)
  endforeach()
  find_library(${name}_LIBRARY NAMES ${library} lib${library}.so.${version} NAMES_PER_DIR
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${folders} PATH_SUFFIXES lib lib64)
  get_filename_component(beside "${${name}_LIBRARY}" DIRECTORY)
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${beside}/../include ${CUDAToolkit_INCLUDE_DIRS} ${folders}
            PATH_SUFFIXES include)
endfunction()
