# cmake --install, find_package(doppler), pkg-config, and CPack's .deb and .tar.gz.
#   PREFIX/bin/doppler                        the program
#   PREFIX/LIBDIR/libdoppler.so               the library; cmake/doppler and pkgconfig beside it
#   PREFIX/lib/doppler/libwebgpu_wrapper.so   Dawn, found at run time from the program and from the library
#   PREFIX/lib/doppler/libdoppler_mpi.so      ranks, with --component mpi where it was built with Open MPI
#   PREFIX/lib/doppler/libdoppler_nats.so     queues, with --component nats where it was built with libnats
#   PREFIX/share/doppler                      families, which both have inside as well, and the model that ships with Doppler
if(NOT DOPPLER_INSTALL)
  return()
endif()
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is installed must have been built; the tests need not
include(CMakePackageConfigHelpers)
set(doppler_cmake ${CMAKE_INSTALL_LIBDIR}/cmake/doppler)
if(DOPPLER_PROGRAM)
  install(TARGETS doppler RUNTIME)
endif()
install(TARGETS libdoppler EXPORT doppler LIBRARY)
install(DIRECTORY include/doppler DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT doppler NAMESPACE doppler:: FILE doppler-targets.cmake DESTINATION ${doppler_cmake})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/doppler-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES packaging/doppler-config.cmake ${PROJECT_BINARY_DIR}/generated/doppler-config-version.cmake
        DESTINATION ${doppler_cmake})
file(RELATIVE_PATH doppler_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" doppler_up "${doppler_up}")
configure_file(packaging/doppler.pc.in ${PROJECT_BINARY_DIR}/generated/doppler.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/doppler.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/dawn/libwebgpu_wrapper.so DESTINATION lib/doppler OPTIONAL)
if(TARGET doppler_mpi)
  # By itself (cmake --install build --component mpi), so that packages depend on no MPI.
  install(TARGETS doppler_mpi LIBRARY DESTINATION lib/doppler COMPONENT mpi EXCLUDE_FROM_ALL)
endif()
if(TARGET doppler_nats)
  install(TARGETS doppler_nats LIBRARY DESTINATION lib/doppler COMPONENT nats EXCLUDE_FROM_ALL)
endif()
install(DIRECTORY families DESTINATION ${CMAKE_INSTALL_DATADIR}/doppler)
install(DIRECTORY models/tiny DESTINATION ${CMAKE_INSTALL_DATADIR}/doppler/models)
install(FILES packaging/doppler.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES packaging/completions/doppler.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME doppler)
install(FILES packaging/completions/_doppler DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES packaging/completions/doppler.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

if(DOPPLER_TESTS AND NOT DOPPLER_SANITIZE)  # programs outside do not know the sanitizers
  add_test(NAME package.installed COMMAND ${DOPPLER_PYTHON} ${PROJECT_SOURCE_DIR}/tests/package/package_test.py
                                          ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(package.installed PROPERTIES TIMEOUT ${test_timeout})
endif()

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME doppler)
set(CPACK_PACKAGE_VENDOR Doppler)
set(CPACK_PACKAGE_CONTACT "Doppler's maintainers <maintainers@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Language models on the machine you have")
set(CPACK_PACKAGE_DESCRIPTION
    "Runs language models from GGUF files, Hugging Face folders and its own artefacts on a GPU (WebGPU) or the CPU. The program, the library with its headers, and a small model.")
set(CPACK_PACKAGE_FILE_NAME doppler-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_SOURCE_GENERATOR "")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The libraries that program and library are linked with; what they look for at run time is only recommended.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libvulkan1")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "mesa-vulkan-drivers")
set(CPACK_DEB_COMPONENT_INSTALL OFF)
include(CPack)
