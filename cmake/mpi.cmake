# Ranks and queues: src/cluster, and apart from it libdoppler_mpi.so and libdoppler_nats.so, the files that are linked with
# MPI and with libnats, made where those are there and loaded by a program that needs them.
file(GLOB cluster_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cluster/*.cpp)
list(FILTER cluster_sources EXCLUDE REGEX "/(mpi|nats)_plugin\\.cpp$")
add_library(doppler_cluster STATIC ${cluster_sources})
target_include_directories(doppler_cluster PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(doppler_cluster PUBLIC doppler_model ${CMAKE_DL_LIBS})
doppler_precompile(doppler_cluster)

pkg_check_modules(OMPI IMPORTED_TARGET ompi)
if(OMPI_FOUND)
  add_library(doppler_mpi MODULE ${PROJECT_SOURCE_DIR}/src/cluster/mpi_plugin.cpp)
  target_include_directories(doppler_mpi PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(doppler_mpi PRIVATE PkgConfig::OMPI)
  set_target_properties(doppler_mpi PROPERTIES PREFIX lib OUTPUT_NAME doppler_mpi)
endif()

pkg_check_modules(NATS IMPORTED_TARGET libnats)
if(NATS_FOUND)
  add_library(doppler_nats MODULE ${PROJECT_SOURCE_DIR}/src/cluster/nats_plugin.cpp)
  target_include_directories(doppler_nats PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(doppler_nats PRIVATE PkgConfig::NATS)
  set_target_properties(doppler_nats PROPERTIES PREFIX lib OUTPUT_NAME doppler_nats)
endif()
