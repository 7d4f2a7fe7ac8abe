# SPDX-License-Identifier: Apache-2.0
#
# oneDNN 3 for the backend cpu: the system's, or the one in build/venv where tools/*.sh put it. Sets dnnl_FOUND.
include(${CMAKE_CURRENT_LIST_DIR}/watch.cmake)
set(dnnl_FOUND FALSE)
if(EBB_CPU)
  foreach(prefix ${CMAKE_SOURCE_DIR}/build/venv ${CMAKE_PREFIX_PATH} /usr/local /usr)
    ebb_watch(${prefix}/lib*/cmake/dnnl/dnnl-config*.cmake ${prefix}/lib/*/cmake/dnnl/dnnl-config*.cmake)
  endforeach()
  find_package(dnnl 3 QUIET HINTS ${CMAKE_SOURCE_DIR}/build/venv)
  if(NOT dnnl_FOUND)
    message(NOTICE "oneDNN 3 was not found: the backend cpu is left out, and ref, which is far slower, is the default. "
                   "Install oneDNN 3 (libdnnl-dev on Debian 13 and Ubuntu 24.04) or run tools/demo.sh, then build again")
  endif()
endif()
