// The program as several ranks that an MPI launcher started: one model, its layers divided among them.
//
//   join_ranks()             first of all; where it says that this is not the first rank:
//   work_for_first_rank(…)   runs stages until the first rank is done; else the program goes on as it would alone, and
//                            make_executor() divides the model
//   leave_ranks(code)        last of all
#pragma once

#include <memory>
#include <string>

#include "engine/loaded_model.h"
#include "model/executor.h"

namespace doppler {

// Meets the other ranks, where a launcher started several. False: this is not the first.
bool join_ranks();
bool several_ranks();  // joined

// options: those of this rank's own device, threads and memory.
void work_for_first_rank(const LoadedModel& model, const std::string& backend, const ExecutorOptions& options);
std::unique_ptr<Executor> make_ranks_executor(const LoadedModel& model, const std::string& backend,
                                              const ExecutorOptions& options);

// The program ends with this code: all ranks do. Nothing where none were joined.
void leave_ranks(int exit_code);

}  // namespace doppler
