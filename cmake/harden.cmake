# What makes a weakness harder to use, of everything that is linked: places of the loader's choosing (PIE), tables that are
# read-only once they are filled (full RELRO), no executable stack. tools/check_hardening.sh looks at what was built. Not in
# a project that Doppler is a part of, which has flags of its own.
option(DOPPLER_HARDEN "Link with what makes weaknesses harder to use" ON)
if(NOT DOPPLER_HARDEN OR NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(CheckLinkerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)  # else nothing but the compiler's habit says -pie
foreach(flag -z,relro -z,now -z,noexecstack)
  string(MAKE_C_IDENTIFIER "DOPPLER_LINKS${flag}" has)
  check_linker_flag(CXX "-Wl,${flag}" ${has})
  if(${has})
    add_link_options("-Wl,${flag}")
  endif()
endforeach()
