# SPDX-License-Identifier: Apache-2.0
#
# The fuzz targets with libFuzzer: `make fuzz T=name S=seconds`.
if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
  message(FATAL_ERROR "EBB_FUZZ needs clang")
endif()
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source} $<TARGET_OBJECTS:ebb_objects>)
  target_include_directories(${name} PRIVATE include src tests)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${EBB_LINK})
endforeach()
