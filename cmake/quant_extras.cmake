# The benchmark of the number formats: quantize_bench prints M weights/s for each type.
add_executable(quantize_bench EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/bench/quantize_bench.cpp)
target_link_libraries(quantize_bench PRIVATE doppler_convert)
