# SPDX-License-Identifier: Apache-2.0
#
# Packages that the build can do without may be installed after the first configure. ebb_watch(PATTERN...) names the
# files by which such a package is found: when one of them comes, goes or changes, the next build configures again.
function(ebb_watch)
  file(GLOB found CONFIGURE_DEPENDS ${ARGN})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${found})
endfunction()
