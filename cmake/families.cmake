# Puts families/*.json into the program, so that it needs no files beside it. A changed or new file reconfigures.
file(GLOB family_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/families/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${family_files})
set(family_entries "")
foreach(family_file IN LISTS family_files)
  get_filename_component(family_name ${family_file} NAME)
  file(READ ${family_file} family_text)
  string(APPEND family_entries "    {\"${family_name}\", R\"FAMILY(${family_text})FAMILY\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/embedded_families.cpp CONTENT
"// Generated from families/*.json.
#include \"import/family.h\"

namespace doppler {

std::span<const EmbeddedFamily> embedded_families() {
  static constexpr EmbeddedFamily kFamilies[] = {
@family_entries@  };
  return kFamilies;
}

}  // namespace doppler
" @ONLY)
target_sources(doppler_import PRIVATE ${PROJECT_BINARY_DIR}/generated/embedded_families.cpp)
