# Debian's clang for WebAssembly with the libraries of tools/fetch_wasi.sh.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_CXX_COMPILER clang++-22)
set(CMAKE_AR llvm-ar-22)
set(CMAKE_RANLIB llvm-ranlib-22)
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasip1)
execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../tools/fetch_wasi.sh OUTPUT_VARIABLE wasi_root
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(CMAKE_SYSROOT ${wasi_root})
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
