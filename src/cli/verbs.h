// The verbs of the command line, one file each. add_x() registers the subcommand with its help, an example in the
// footer, and a callback that does the work. Errors leave a callback as Failure; a verb that checked something and
// found it faulty throws CheckFailed, and the program exits with 1.
#pragma once

#include <CLI/CLI.hpp>

namespace doppler {

struct CheckFailed {};  // "checked, and found faulty"; everything worth saying has been printed

void add_run(CLI::App& app);
void add_convert(CLI::App& app);
void add_inspect(CLI::App& app);
void add_verify(CLI::App& app);
void add_synth(CLI::App& app);
void add_bench(CLI::App& app);
void add_debug(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_devices(CLI::App& app);
void add_test(CLI::App& app);

void add_bench_kernels(CLI::App& bench);  // verbs of bench
void add_bench_peers(CLI::App& bench);

}  // namespace doppler
