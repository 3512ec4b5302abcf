// Ranks that an MPI launcher started (mpirun, srun), spoken to through libdoppler_mpi.so.
#pragma once

#include <memory>

#include "cluster/transport.h"

namespace doppler {

// How many ranks this program was started as, by what launchers leave in the environment; 1 where there was none.
int launched_ranks();
// Ranks on this machine, this one among them, likewise.
int launched_ranks_here();

class MpiTransport : public Transport {
 public:
  // Loads the plug-in and meets the other ranks. From then on each rank hears of each other all the time: one that is
  // silent for kSilence ends the job with a sentence and exit code 7.
  static std::unique_ptr<MpiTransport> open();

  // All ranks are done: leaves them. Every rank must.
  virtual void leave() = 0;
  // Ends all ranks at once.
  [[noreturn]] virtual void abort(int exit_code) = 0;

  virtual uint64_t sent_bytes() const = 0;  // of messages, without signs of life
};

}  // namespace doppler
