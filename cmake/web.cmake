# The page's tests: Node runs them, playwright-core drives Chromium, the site is in web/dist (npm run build makes it).
# They are there once both are; ./test sees to that.
find_program(DOPPLER_NODE node)
file(GLOB web_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/web/*_test.mjs)
if(DOPPLER_TESTS AND DOPPLER_NODE AND EXISTS ${PROJECT_SOURCE_DIR}/web/dist/lib/doppler.wasm AND TARGET doppler)
  foreach(test ${web_tests})
    get_filename_component(name ${test} NAME_WE)
    string(REGEX REPLACE "_test$" "" name ${name})
    add_test(NAME web.${name} COMMAND ${DOPPLER_NODE} --test ${test})
    set_tests_properties(web.${name} PROPERTIES TIMEOUT 900 ENVIRONMENT "DOPPLER_BUILD=${PROJECT_BINARY_DIR}")
  endforeach()
  set_tests_properties(web.recording PROPERTIES RUN_SERIAL ON)  # it times things
endif()
# The engine for the browser: cmake --build --preset web. tools/setup.sh web installs what it takes.
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(web COMMAND ${PROJECT_SOURCE_DIR}/tools/setup.sh web ${PROJECT_BINARY_DIR}
                            COMMAND ${CMAKE_COMMAND} -E env "PATH=${PROJECT_BINARY_DIR}/node/bin:$ENV{PATH}"
                                    node ${PROJECT_SOURCE_DIR}/web/tools/build.mjs
                    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} USES_TERMINAL)
endif()
# The JavaScript engine's own validator and engine on our artefacts, where DOPPLER_ORIGINAL=PATH names a checkout of it.
if(DOPPLER_TESTS AND DOPPLER_NODE AND TARGET doppler)
  foreach(name validator engine)
    add_test(NAME original.${name} COMMAND ${DOPPLER_NODE} ${PROJECT_SOURCE_DIR}/tests/original/${name}_test.mjs)
    set_tests_properties(original.${name} PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77
                                                     ENVIRONMENT "DOPPLER_BUILD=${PROJECT_BINARY_DIR}")
  endforeach()
endif()
