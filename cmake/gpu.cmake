# The WebGPU backend: kernels are read at build time by gen_kernels, which writes the C++ that mirrors them.
#   -DDAWN_SDK=DIR     use DIR/include/webgpu/webgpu.h in place of src/gpu/webgpu/webgpu_c.h, and DIR/lib/libwebgpu_dawn.so in
#                      place of the library that tools/setup.sh fetches
set(DAWN_SDK "" CACHE PATH "A Dawn SDK whose header and shared library are used in place of our own")

if(NOT DOPPLER_GPU)
  if(DOPPLER_TESTS)
    message(FATAL_ERROR "DOPPLER_GPU=OFF is for building Doppler without its tests: -DDOPPLER_TESTS=OFF")
  endif()
  add_library(doppler_gpu STATIC ${PROJECT_SOURCE_DIR}/src/gpu/without_gpu.cpp)
  target_include_directories(doppler_gpu PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(doppler_gpu INTERFACE DOPPLER_NO_GPU)
  target_link_libraries(doppler_gpu PUBLIC doppler_model ${CMAKE_DL_LIBS})
  doppler_precompile(doppler_gpu)
  add_library(doppler_gpu_cases INTERFACE)
  return()
endif()

add_executable(gen_kernels ${PROJECT_SOURCE_DIR}/tools/gen_kernels.cpp)
target_compile_options(gen_kernels PRIVATE -O0)  # it runs for milliseconds

set(gpu_generated ${PROJECT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${gpu_generated}/gpu/wgsl)
file(GLOB gpu_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gpu/ops/*.wgsl
     ${PROJECT_SOURCE_DIR}/src/gpu/webgpu/*.wgsl)
file(GLOB gpu_snippets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gpu/ops/*.wgsl
     ${PROJECT_SOURCE_DIR}/src/gpu/ops/lib/*.wgsl)
set(gpu_kernel_sources)
foreach(kernel ${gpu_kernels})
  get_filename_component(op ${kernel} NAME_WE)
  set(generated ${gpu_generated}/gpu/wgsl/${op}.h ${gpu_generated}/gpu/wgsl/${op}.cpp)
  add_custom_command(OUTPUT ${generated}
                     COMMAND gen_kernels ${kernel} ${gpu_generated}/gpu/wgsl
                     DEPENDS gen_kernels ${kernel} ${gpu_snippets}
                     COMMENT "Generating ${op}")
  list(APPEND gpu_kernel_sources ${generated})
endforeach()

file(GLOB gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gpu/*/*.cpp)
add_library(doppler_gpu STATIC ${gpu_sources} ${gpu_kernel_sources})
target_include_directories(doppler_gpu PUBLIC ${PROJECT_SOURCE_DIR}/src ${gpu_generated})
target_link_libraries(doppler_gpu PUBLIC doppler_model ${CMAKE_DL_LIBS})
doppler_precompile(doppler_gpu)
# Compiled as one are the files of a folder, but for gpu/ops, whose files have constants of the same names.
set_target_properties(doppler_gpu PROPERTIES UNITY_BUILD_MODE GROUP)
foreach(group webgpu run)
  set(sources ${gpu_sources})
  list(FILTER sources INCLUDE REGEX "/gpu/${group}/[a-z_0-9]+\\.cpp$")
  set_source_files_properties(${sources} PROPERTIES UNITY_GROUP ${group})
endforeach()
if(DAWN_SDK)
  if(NOT EXISTS ${DAWN_SDK}/include/webgpu/webgpu.h)
    message(FATAL_ERROR "DAWN_SDK=${DAWN_SDK} has no include/webgpu/webgpu.h")
  endif()
  target_compile_definitions(doppler_gpu PRIVATE DOPPLER_DAWN_SDK)
  target_include_directories(doppler_gpu SYSTEM PRIVATE ${DAWN_SDK}/include)
endif()

# The kernels' cases: one list for gpu_tests, `doppler test correctness`, `doppler bench kernels` and web/kernel_tests.
file(GLOB gpu_case_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu/cases/*.cpp)
add_library(doppler_gpu_cases STATIC ${gpu_case_sources})
target_include_directories(doppler_gpu_cases PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(doppler_gpu_cases PUBLIC doppler_gpu)
doppler_precompile(doppler_gpu_cases)

# Dawn is loaded at run time from <build>/dawn; a build works without it, and says so when a GPU is asked for.
set(dawn_sdk_library ${DAWN_SDK}/lib/libwebgpu_dawn.so)
if(DAWN_SDK AND EXISTS ${dawn_sdk_library})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/dawn)
  file(CREATE_LINK ${dawn_sdk_library} ${PROJECT_BINARY_DIR}/dawn/libwebgpu_wrapper.so SYMBOLIC)
  file(WRITE ${PROJECT_BINARY_DIR}/dawn/version "${DAWN_SDK}")  # so that a build without it fetches ours again
else()
  if(DAWN_SDK)
    message(WARNING "${dawn_sdk_library} is not there. The library that is fetched instead may not be of the header's "
                    "revision, and is refused then; DOPPLER_DAWN=FILE names another one at run time")
  endif()
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/setup.sh dawn ${PROJECT_BINARY_DIR} RESULT_VARIABLE dawn_missing)
  if(dawn_missing)
    message(WARNING "Dawn could not be fetched; the WebGPU backend will not find a library at run time")
  endif()
endif()

doppler_tests(gpu DEPS doppler_gpu_cases)
if(TARGET gpu_tests)
  add_dependencies(gpu_tests gen_kernels)
  target_compile_definitions(gpu_tests PRIVATE DOPPLER_GEN_KERNELS="$<TARGET_FILE:gen_kernels>")
endif()
