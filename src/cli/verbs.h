// The verbs of the command line, one file each. add_x() registers the subcommand with its help, an example in the
// footer, and a callback that does the work. Errors leave a callback as Failure; a verb that checked something and
// found it faulty throws CheckFailed, and the program exits with 1.
#pragma once

#include "cli/options.h"

namespace doppler {

struct CheckFailed {};  // "checked, and found faulty"; everything worth saying has been printed

void add_run(Verb app);
void add_serve(Verb app);
void add_batch(Verb app);
void add_pull(Verb app);
void add_cache(Verb app);  // list, du and rm
void add_convert(Verb app);
void add_inspect(Verb app);
void add_verify(Verb app);
void add_synth(Verb app);
void add_bench(Verb app);
void add_debug(Verb app);
void add_perplexity(Verb app);
void add_embed(Verb app);
void add_tokenize(Verb app);
void add_devices(Verb app);
void add_doctor(Verb app);
void add_test(Verb app);

void add_bench_kernels(Verb bench);  // verbs of bench
void add_bench_peers(Verb bench);
void add_bench_batch(Verb bench);
void add_bench_serve(Verb bench);

void add_test_inference(Verb test);  // a verb of test

}  // namespace doppler
