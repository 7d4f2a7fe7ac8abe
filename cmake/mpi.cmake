# SPDX-License-Identifier: Apache-2.0
#
# libebb_mpi.so, which libebb loads for --remote: memory of other processes over MPI, where an MPI is installed. It links
# no libebb, and libebb links no MPI.
ebb_watch(/usr/bin/mpicc /usr/local/bin/mpicc)
find_package(MPI QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
  message(NOTICE "MPI was not found (Debian's libopenmpi-dev and openmpi-bin): this build has no --remote")
  return()
endif()
file(GLOB mpi_sources CONFIGURE_DEPENDS src/remote/mpi/*.c)
add_library(ebb_mpi MODULE ${mpi_sources})
target_include_directories(ebb_mpi PRIVATE include src)
target_link_options(ebb_mpi PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libebb_mpi.map)
target_link_libraries(ebb_mpi PRIVATE MPI::MPI_C Threads::Threads)
set_target_properties(ebb_mpi PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/libebb_mpi.map)
