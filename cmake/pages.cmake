# SPDX-License-Identifier: Apache-2.0
#
# What the program writes about itself, into the build folder, to be installed: man pages, shell completion, and a sample
# recording of a few steps of ResNet-20. Where the program that is built cannot run here, all of it is left out.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
set(EBB_PAGES ${CMAKE_BINARY_DIR}/pages)
file(MAKE_DIRECTORY ${EBB_PAGES})

set(pages ${EBB_PAGES}/ebb.1)
add_custom_command(OUTPUT ${EBB_PAGES}/ebb.1 COMMAND ebb_cli help --man > ${EBB_PAGES}/ebb.1 DEPENDS ebb_cli)
file(GLOB commands CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src/cli src/cli/cmd_*.c)
foreach(file ${commands})
  string(REGEX REPLACE "^cmd_(.*)\\.c$" "\\1" command ${file})
  set(page ${EBB_PAGES}/ebb-${command}.1)
  add_custom_command(OUTPUT ${page} COMMAND ebb_cli help --man ${command} > ${page} DEPENDS ebb_cli)
  list(APPEND pages ${page})
endforeach()
foreach(shell bash zsh fish)
  set(page ${EBB_PAGES}/ebb.${shell})
  add_custom_command(OUTPUT ${page} COMMAND ebb_cli help --completion ${shell} > ${page} DEPENDS ebb_cli)
  list(APPEND pages ${page})
endforeach()
add_custom_command(
  OUTPUT ${EBB_PAGES}/resnet20.trace
  COMMAND ebb_cli train resnet20 --batch 8 --steps 4 --record ${EBB_PAGES}/resnet20.trace --record-steps 3
          > ${EBB_PAGES}/resnet20.log 2>&1
  DEPENDS ebb_cli)
add_custom_target(ebb_pages ALL DEPENDS ${pages})
# Not with a sanitizer: it takes long, and nothing of such a build is installed.
if(NOT EBB_SANITIZE)
  add_custom_target(ebb_sample ALL DEPENDS ${EBB_PAGES}/resnet20.trace)
endif()
