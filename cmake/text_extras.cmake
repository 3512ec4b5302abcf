# Time and memory of tokenizers; see the file.
add_executable(tokenizer_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/tokenizer_bench.cpp)
target_compile_definitions(tokenizer_bench PRIVATE DOPPLER_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                                   DOPPLER_BINARY_DIR="${CMAKE_BINARY_DIR}")
target_link_libraries(tokenizer_bench PRIVATE doppler_text)

# Fuzz targets: clang with libFuzzer, everything they run instrumented. Run one with its seeds, for example
#   tokenizer_fuzz -max_total_time=60 -dict=tests/fuzz/tokenizer.dict NEW_FOLDER tests/fuzz/tokenizer_seeds
if(DOPPLER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "DOPPLER_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  file(GLOB text_fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/text/*.cpp ${CMAKE_SOURCE_DIR}/src/base/*.cpp)
  add_library(doppler_text_fuzzed STATIC EXCLUDE_FROM_ALL ${text_fuzz_sources})
  target_include_directories(doppler_text_fuzzed PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(doppler_text_fuzzed PUBLIC fmt::fmt nlohmann_json::nlohmann_json OpenSSL::Crypto Threads::Threads
                                                   PkgConfig::PCRE2 PkgConfig::UTF8PROC)
  target_compile_options(doppler_text_fuzzed PUBLIC -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined
                                                    -fno-sanitize-recover=all)
  target_link_options(doppler_text_fuzzed PUBLIC -fsanitize=fuzzer-no-link,address,undefined)
  # One target for each tests/fuzz/<name>_fuzz.cpp of this room.
  foreach(fuzz_name tokenizer template)
    if(EXISTS ${CMAKE_SOURCE_DIR}/tests/fuzz/${fuzz_name}_fuzz.cpp)
      add_executable(${fuzz_name}_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/${fuzz_name}_fuzz.cpp)
      target_link_libraries(${fuzz_name}_fuzz PRIVATE doppler_text_fuzzed)
      target_link_options(${fuzz_name}_fuzz PRIVATE -fsanitize=fuzzer)
    endif()
  endforeach()
endif()
