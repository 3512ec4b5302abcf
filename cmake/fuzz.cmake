# Fuzz targets, one for each tests/fuzz/<name>_fuzz.cpp: clang with libFuzzer, everything they run instrumented.
# tools/fuzz.sh builds them, runs each with its seeds and words, and counts what they reach.
if(DOPPLER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "DOPPLER_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  file(GLOB fuzzed_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/base/*.cpp ${PROJECT_SOURCE_DIR}/src/format/*.cpp
       ${PROJECT_SOURCE_DIR}/src/tokenizer/*.cpp ${PROJECT_SOURCE_DIR}/src/jinja/*.cpp
       ${PROJECT_SOURCE_DIR}/src/grammar/*.cpp
       ${PROJECT_SOURCE_DIR}/src/model/*.cpp ${PROJECT_SOURCE_DIR}/src/import/*.cpp)
  add_library(doppler_fuzzed STATIC EXCLUDE_FROM_ALL ${fuzzed_sources} ${PROJECT_SOURCE_DIR}/src/cli/token_file.cpp
                                                     ${PROJECT_BINARY_DIR}/generated/embedded_families.cpp)
  target_include_directories(doppler_fuzzed PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(doppler_fuzzed PUBLIC fmt::fmt nlohmann_json::nlohmann_json OpenSSL::Crypto Threads::Threads
                                              PkgConfig::PCRE2 PkgConfig::UTF8PROC)
  target_compile_options(doppler_fuzzed PUBLIC -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all
                                               -fsanitize=fuzzer-no-link,address,undefined
                                               -fprofile-instr-generate -fcoverage-mapping)
  target_link_options(doppler_fuzzed PUBLIC -fsanitize=fuzzer-no-link,address,undefined -fprofile-instr-generate)
  add_custom_target(fuzz_targets)
  file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp)
  foreach(source ${fuzz_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    target_compile_definitions(${name} PRIVATE DOPPLER_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name} PRIVATE doppler_fuzzed)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_targets ${name})
  endforeach()
endif()
