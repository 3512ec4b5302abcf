# The WebGPU backend: kernels are read at build time by gen_kernels, which writes the C++ that mirrors them.
#   -DDAWN_SDK=DIR     use DIR/include/webgpu/webgpu.h in place of src/gpu/webgpu_c.h
set(DAWN_SDK "" CACHE PATH "A Dawn SDK whose header is used in place of the built-in declarations")

add_executable(gen_kernels ${CMAKE_SOURCE_DIR}/tools/gen_kernels.cpp)

set(gpu_generated ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${gpu_generated}/gpu/wgsl)
file(GLOB gpu_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/gpu/kernels/*.wgsl)
file(GLOB gpu_snippets CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/gpu/kernels/lib/*.wgsl)
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

file(GLOB gpu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/gpu/*.cpp ${CMAKE_SOURCE_DIR}/src/gpu/cases/*.cpp)
add_library(doppler_gpu STATIC ${gpu_sources} ${gpu_kernel_sources})
target_include_directories(doppler_gpu PUBLIC ${CMAKE_SOURCE_DIR}/src ${gpu_generated})
target_link_libraries(doppler_gpu PUBLIC doppler_model ${CMAKE_DL_LIBS})
if(DAWN_SDK)
  target_compile_definitions(doppler_gpu PUBLIC DOPPLER_DAWN_SDK)
  target_include_directories(doppler_gpu PUBLIC ${DAWN_SDK}/include)
endif()
if(TARGET doppler)
  target_link_libraries(doppler PRIVATE doppler_gpu)
endif()

# Dawn is loaded at run time from <build>/dawn; a build works without it, and says so when a GPU is asked for.
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/fetch_dawn.sh ${CMAKE_BINARY_DIR} RESULT_VARIABLE dawn_missing)
if(dawn_missing)
  message(WARNING "Dawn could not be fetched; the WebGPU backend will not find a library at run time")
endif()

doppler_tests(gpu DEPS doppler_gpu)
if(TARGET gpu_tests)
  add_dependencies(gpu_tests gen_kernels)
  target_compile_definitions(gpu_tests PRIVATE DOPPLER_GEN_KERNELS="$<TARGET_FILE:gen_kernels>")
endif()
