# Time and memory of tokenizers; see the file.
add_executable(tokenizer_bench EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/bench/tokenizer_bench.cpp)
target_compile_definitions(tokenizer_bench PRIVATE DOPPLER_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                                   DOPPLER_BINARY_DIR="${PROJECT_BINARY_DIR}")
target_link_libraries(tokenizer_bench PRIVATE doppler_tokenizer)
# What masks of grammars cost; see the file.
add_executable(grammar_bench EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/bench/grammar_bench.cpp)
target_compile_definitions(grammar_bench PRIVATE DOPPLER_BINARY_DIR="${PROJECT_BINARY_DIR}")
target_link_libraries(grammar_bench PRIVATE doppler_grammar)
