# SPDX-License-Identifier: Apache-2.0
#
# libebb_names.so, which `ebb record` loads to name callers by symbols and debug information, where elfutils' libdw is.
# It lies beside libebb.so; what it uses of base is compiled once more, since it links no libebb.
ebb_watch(/usr/include/elfutils/libdwfl.h /usr/local/include/elfutils/libdwfl.h)
pkg_check_modules(LIBDW QUIET IMPORTED_TARGET libdw)
if(NOT LIBDW_FOUND)
  message(NOTICE "libdw was not found (Debian's libdw-dev): ebb record names exported functions only")
  return()
endif()
file(GLOB names_sources CONFIGURE_DEPENDS src/names/*.c)
add_library(ebb_names MODULE ${names_sources} src/base/mem.c src/base/rng.c src/base/status.c src/base/utf8.c)
target_include_directories(ebb_names PRIVATE include src)
target_compile_options(ebb_names PRIVATE -ffunction-sections)
target_link_options(ebb_names PRIVATE -Wl,--gc-sections
                    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libebb_names.map)
target_link_libraries(ebb_names PRIVATE PkgConfig::LIBDW Threads::Threads)
set_target_properties(ebb_names PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/libebb_names.map)
