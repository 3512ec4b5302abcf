# Puts families/health/*.json into the program. A changed or new file reconfigures.
file(GLOB health_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/families/health/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${health_files})
set(health_entries "")
foreach(health_file IN LISTS health_files)
  get_filename_component(health_name ${health_file} NAME)
  file(READ ${health_file} health_text)
  string(APPEND health_entries "    {\"families/health/${health_name}\", R\"HEALTH(${health_text})HEALTH\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/embedded_health.cpp CONTENT
"// Generated from families/health/*.json.
#include \"debug/health.h\"

namespace doppler {

std::span<const EmbeddedHealth> embedded_health() {
  static constexpr EmbeddedHealth kRecords[] = {
@health_entries@  };
  return kRecords;
}

}  // namespace doppler
" @ONLY)
target_sources(doppler_debug PRIVATE ${PROJECT_BINARY_DIR}/generated/embedded_health.cpp)
