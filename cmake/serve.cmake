# Puts the server's chat page into the program: web/serve/index.html with the look of the browser's page.
if(NOT TARGET doppler_serve)
  return()
endif()
set(serve_page ${PROJECT_SOURCE_DIR}/web/serve/index.html)
set(serve_style ${PROJECT_SOURCE_DIR}/web/page/style.css)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${serve_page} ${serve_style})
file(READ ${serve_page} serve_page_text)
file(READ ${serve_style} serve_style_text)
string(REPLACE "/* style */" "${serve_style_text}" serve_page_text "${serve_page_text}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/serve_page.cpp CONTENT
"// Generated from web/serve/index.html.
#include \"serve/page.h\"

namespace doppler::serve {

std::string_view chat_page() { return R\"PAGE(@serve_page_text@)PAGE\"; }

}  // namespace doppler::serve
" @ONLY)
target_sources(doppler_serve PRIVATE ${PROJECT_BINARY_DIR}/generated/serve_page.cpp)

# What clients see, with the clients themselves, once tools/setup.sh has fetched them.
find_program(DOPPLER_NODE node)
file(GLOB serve_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/serve/*_test.mjs)
if(DOPPLER_TESTS AND DOPPLER_NODE AND EXISTS ${PROJECT_BINARY_DIR}/clients/version AND TARGET doppler)
  foreach(test ${serve_tests})
    get_filename_component(name ${test} NAME_WE)
    string(REGEX REPLACE "_test$" "" name ${name})
    add_test(NAME serve.${name} COMMAND ${DOPPLER_NODE} --test ${test})
    set_tests_properties(serve.${name} PROPERTIES TIMEOUT ${test_timeout} ENVIRONMENT "DOPPLER_BUILD=${PROJECT_BINARY_DIR}")
  endforeach()
endif()

# deploy/kubernetes, with the schemas that tools/setup.sh has fetched.
if(DOPPLER_TESTS AND DOPPLER_NODE AND EXISTS ${PROJECT_BINARY_DIR}/kubernetes/version AND TARGET doppler)
  add_test(NAME deploy.kubernetes COMMAND ${DOPPLER_NODE} --test ${PROJECT_SOURCE_DIR}/tests/kubernetes/manifests_test.mjs)
  set_tests_properties(deploy.kubernetes PROPERTIES TIMEOUT ${test_timeout} ENVIRONMENT "DOPPLER_BUILD=${PROJECT_BINARY_DIR}")
endif()
