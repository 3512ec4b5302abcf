// What libdoppler_mpi.so offers the program: the few functions of MPI that it needs, as a table. The program finds it
// by dlopen and is not linked with MPI; the plug-in knows nothing of the program.
#pragma once

#include <cstddef>

inline constexpr int kMpiPluginVersion = 1;
inline constexpr const char* kMpiPluginFile = "libdoppler_mpi.so";
inline constexpr const char* kMpiPluginSymbol = "doppler_mpi_plugin";

// Functions that return int: 0, or MPI's error code. Called by one thread at a time.
struct MpiPlugin {
  int version = kMpiPluginVersion;
  int (*init)(int* rank, int* size) = nullptr;
  // `bytes` stay where they are until the request is done, and end in a null request.
  int (*send)(const void* bytes, size_t count, int to, int tag, void** request) = nullptr;
  int (*receive)(void* bytes, size_t count, int from, int tag, void** request) = nullptr;
  int (*test)(void** request, int* done) = nullptr;
  // Is there a message of this rank and tag, and how long is it?
  int (*probe)(int from, int tag, int* there, size_t* count) = nullptr;
  void (*describe)(int error, char* text, size_t size) = nullptr;
  void (*abort)(int exit_code) = nullptr;  // ends all ranks; does not return
  int (*finalize)() = nullptr;
  const char* library = nullptr;  // "Open MPI v4.1.4, …"
};
