# Instruction sets by file name: src/cpu/*_avx512.cpp, *_avx2.cpp and *_amx.cpp are compiled for theirs, everything
# else for any x86-64. Which of them runs is decided at run time (src/cpu/isa.cpp), so these files may include only
# headers whose functions are private to them: a shared inline function compiled here could be picked by the linker
# for a machine without the instructions.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(avx2_flags -mavx2 -mfma -mf16c -mbmi -mbmi2)
  set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mavx512vnni -mgfni)
  # GCC 12's own AVX-512 headers read variables they have not set, on purpose.
  list(APPEND avx512_flags -Wno-uninitialized -Wno-maybe-uninitialized)
  set(amx_flags ${avx512_flags} -mamx-tile -mamx-int8)
  if(NOT DOPPLER_SANITIZE)
    set(speed_flags -O3)
  endif()
  foreach(isa avx2 avx512 amx)
    file(GLOB isa_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cpu/*_${isa}.cpp)
    if(isa_sources)
      set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${speed_flags};${${isa}_flags}"
                                  SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
  file(GLOB isa_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cpu/*_portable.cpp)
  if(isa_sources)
    set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${speed_flags}"
                                SKIP_PRECOMPILE_HEADERS ON)
  endif()
endif()

# The kernels' cases: one list for cpu_tests and `doppler doctor`.
add_library(doppler_cpu_cases STATIC ${PROJECT_SOURCE_DIR}/tests/cpu/cases/step_cases.cpp)
target_include_directories(doppler_cpu_cases PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(doppler_cpu_cases PUBLIC doppler_cpu doppler_ref doppler_convert)
doppler_precompile(doppler_cpu_cases)

# Speed of the CPU executor on synthetic weights, without files or tokenizer.
if(EXISTS ${PROJECT_SOURCE_DIR}/tests/bench/cpu_bench.cpp)
  add_executable(cpu_bench EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/bench/cpu_bench.cpp)
  target_link_libraries(cpu_bench PRIVATE doppler_cpu doppler_model)
endif()
