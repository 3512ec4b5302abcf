# The fuzz target of chat templates (built by text_extras.cmake) takes its seeds from the recorded templates. A minute:
#   cmake -B build-fuzz -DDOPPLER_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ && cmake --build build-fuzz --target template_fuzz
#   build-fuzz/template_fuzz -max_total_time=60 -max_len=4096
if(TARGET template_fuzz)
  target_compile_definitions(template_fuzz PRIVATE DOPPLER_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
endif()
