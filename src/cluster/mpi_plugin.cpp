// libdoppler_mpi.so: see mpi_plugin.h.
#include "cluster/mpi_plugin.h"

#define OMPI_SKIP_MPICXX 1  // the C++ bindings of old, which would have to be linked
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

namespace {

int init(int* rank, int* size) {
  int given = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given)) return error;
  if (given < MPI_THREAD_SERIALIZED) return MPI_ERR_OTHER;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const int error = MPI_Comm_rank(MPI_COMM_WORLD, rank)) return error;
  return MPI_Comm_size(MPI_COMM_WORLD, size);
}

int keep(int error, MPI_Request request, void** out) {
  *out = error == MPI_SUCCESS ? new MPI_Request(request) : nullptr;
  return error;
}

int send(const void* bytes, size_t count, int to, int tag, void** request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, to, tag, MPI_COMM_WORLD, &made);
  return keep(error, made, request);
}

int receive(void* bytes, size_t count, int from, int tag, void** request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(bytes, static_cast<int>(count), MPI_BYTE, from, tag, MPI_COMM_WORLD, &made);
  return keep(error, made, request);
}

int test(void** request, int* done) {
  auto* made = static_cast<MPI_Request*>(*request);
  const int error = MPI_Test(made, done, MPI_STATUS_IGNORE);
  if (*done == 0 && error == MPI_SUCCESS) return error;
  delete made;
  *request = nullptr;
  return error;
}

int probe(int from, int tag, int* there, size_t* count) {
  MPI_Status status;
  if (const int error = MPI_Iprobe(from, tag, MPI_COMM_WORLD, there, &status)) return error;
  if (*there == 0) return MPI_SUCCESS;
  int bytes = 0;
  const int error = MPI_Get_count(&status, MPI_BYTE, &bytes);
  *count = static_cast<size_t>(bytes);
  return error;
}

void describe(int error, char* text, size_t size) {
  char all[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, all, &length);
  std::snprintf(text, size, "%s", all);
}

void end(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

int finalize() { return MPI_Finalize(); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const MpiPlugin* doppler_mpi_plugin() {
  static char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  static MpiPlugin plugin;
  int length = 0;
  MPI_Get_library_version(library, &length);
  plugin.init = init;
  plugin.send = send;
  plugin.receive = receive;
  plugin.test = test;
  plugin.probe = probe;
  plugin.describe = describe;
  plugin.abort = end;
  plugin.finalize = finalize;
  plugin.library = library;
  return &plugin;
}
