# find_package(doppler) gives doppler::doppler. The library has everything it needs inside or in libraries that the
# system's loader finds.
include(${CMAKE_CURRENT_LIST_DIR}/doppler-targets.cmake)
