// Libraries of ours that the program loads when they are needed, so that it is not linked with what they are.
#pragma once

namespace doppler {

struct PluginName {
  const char* file;      // libdoppler_x.so: beside the program or in its lib/doppler
  const char* variable;  // of the environment, that may name another place
  const char* symbol;    // of the function that gives its table
  int version;
  const char* needed;   // "this program was started as several ranks"
  const char* package;  // that builds it
};

// What the function gives: a table whose first member is its version, an int. Fails where there is none of this
// version.
const void* load_plugin(const PluginName& name);

}  // namespace doppler
