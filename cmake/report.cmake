# SPDX-License-Identifier: Apache-2.0
#
# The page of `ebb report`: its parts and Chart.js become one C file of bytes in the build folder. Chart.js is
# Debian's package libjs-chart.js; where it is elsewhere, -DEBB_CHARTS=/path/to/chart.min.js says so. Without it all
# builds, and the page alone cannot be written. As a script (cmake -P) this file writes that C file.
if(CMAKE_SCRIPT_MODE_FILE)
  function(embed out name)
    set(hex "")
    foreach(path ${ARGN}) # one behind the other
      file(READ ${path} part HEX)
      string(APPEND hex "${part}")
    endforeach()
    string(LENGTH "${hex}" n)
    math(EXPR n "${n} / 2")
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
    file(APPEND ${out} "static const unsigned char ${name}_bytes[] = {\n${bytes}0};\n"
         "const ebb_report_file ebb__report_${name} = {${name}_bytes, ${n}};\n")
  endfunction()

  file(WRITE ${OUT}.part "/* Made by cmake/report.cmake. */\n#include \"report/report_embed.h\"\n")
  embed(${OUT}.part template ${PAGE}/report.html)
  embed(${OUT}.part style ${PAGE}/report.css)
  embed(${OUT}.part script ${PAGE}/base.js ${PAGE}/charts.js ${PAGE}/tables.js ${PAGE}/blocks.js
        ${PAGE}/find.js ${PAGE}/moments.js ${PAGE}/map.js ${PAGE}/page.js)
  embed(${OUT}.part charts ${CHARTS})
  file(RENAME ${OUT}.part ${OUT})
  return()
endif()

ebb_watch(/usr/share/javascript/chart.js/*hart.min.js)
find_file(EBB_CHARTS NAMES chart.min.js Chart.min.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH
          DOC "Chart.js 3, one minified file")
set(charts ${EBB_CHARTS})
if(NOT charts)
  set(charts "")
  message(NOTICE "Chart.js was not found (package libjs-chart.js): ebb report will write no pages")
endif()
set(page ${CMAKE_SOURCE_DIR}/src/report/page)
file(GLOB page_parts CONFIGURE_DEPENDS ${page}/*)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/report_embed.c
  COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/report_embed.c -DPAGE=${page} -DCHARTS=${charts}
          -P ${CMAKE_SOURCE_DIR}/cmake/report.cmake
  DEPENDS ${page_parts} ${charts} ${CMAKE_SOURCE_DIR}/cmake/report.cmake
  VERBATIM)
list(APPEND EBB_SOURCES ${CMAKE_BINARY_DIR}/report_embed.c)
