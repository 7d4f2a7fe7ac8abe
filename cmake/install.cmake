# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` puts where: library, program, public headers, and the files by which pkg-config and
# CMake find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# A oneDNN out of build/venv goes along, to a folder of its own where only libebb looks; the system's stays where
# it is. The program finds the library beside itself.
if(dnnl_FOUND AND dnnl_DIR MATCHES "/venv/")
  set_target_properties(ebb PROPERTIES INSTALL_RPATH "$ORIGIN/ebb")
  install(FILES $<TARGET_FILE:DNNL::dnnl> DESTINATION ${CMAKE_INSTALL_LIBDIR}/ebb
          RENAME $<TARGET_SONAME_FILE_NAME:DNNL::dnnl>)
endif()
install(TARGETS ebb EXPORT ebbTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ebb_record LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ebb_names)
  install(TARGETS ebb_names LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# Where libebb looks for them, beside what else is its own.
foreach(plugin ebb_cuda ebb_mpi)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ebb)
  endif()
endforeach()
if(TARGET ebb_cli)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(ebb_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS ebb_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
# Where man, bash, zsh and fish look by themselves under /usr and /usr/local.
if(EBB_PAGES)
  install(DIRECTORY ${EBB_PAGES}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
  install(FILES ${EBB_PAGES}/ebb.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ebb)
  install(FILES ${EBB_PAGES}/ebb.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _ebb)
  install(FILES ${EBB_PAGES}/ebb.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES ${EBB_PAGES}/resnet20.trace DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples OPTIONAL)
endif()
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY include/ebb DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ebb)
install(EXPORT ebbTargets NAMESPACE ebb:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ebbConfig.cmake.in ebbConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ebbConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ebbConfig.cmake ${CMAKE_BINARY_DIR}/ebbConfigVersion.cmake
        DESTINATION ${package_dir})

configure_file(cmake/ebb.pc.in ebb.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ebb.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Python finds the package with PYTHONPATH; pip installs it out of python/.
install(DIRECTORY python/ebb DESTINATION ${CMAKE_INSTALL_DATADIR}/ebb/python FILES_MATCHING PATTERN "*.py"
        PATTERN "py.typed")
