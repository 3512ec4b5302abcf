#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/say.h"
#include "base/version.h"
#include "cli/config.h"
#include "cli/interrupt.h"
#include "cli/open_model.h"
#include "cli/trace_file.h"
#include "cli/verbs.h"
#include "engine/ranks.h"

namespace {

bool has_verb(const doppler::Verb& program, const std::string& name) {
  const std::vector<doppler::Verb> verbs = program.verbs();
  return std::any_of(verbs.begin(), verbs.end(), [&](const doppler::Verb& verb) { return verb.name() == name; });
}

int whole_number(const std::string& text, const char* where) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  doppler::fail({.code = doppler::ErrorCode::kUsage, .what = "a whole number is needed", .where = where, .got = text});
}

void trace_layers(const std::string& list) {
  doppler::TraceLimits limits = doppler::trace_limits();
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    limits.layers.push_back(whole_number(list.substr(at, comma - at), "--trace-layers"));
    at = comma + 1;
  }
  doppler::set_trace_limits(std::move(limits));
}

void trace_decode_steps(const std::string& number) {
  doppler::TraceLimits limits = doppler::trace_limits();
  limits.decode_steps = whole_number(number, "--trace-steps");
  doppler::set_trace_limits(std::move(limits));
}

// --log, --trace, --trace-file, --offline and --config belong to every verb.
void add_common(doppler::Verb program) {
  program.add_option_function("--log", doppler::set_log_level, "How much is said: silent, info or verbose")
      .default_text("info");
  program.add_option_function("--trace", doppler::set_trace,
                              "Lines about loader, kernels, logits, embed, attn, ffn, kv, sample, buffers, "
                              "perf or all; -subject takes one out");
  program.add_option_function("--trace-layers", trace_layers, "Of the lines about layers only these: 0,12,25");
  program.add_option_function("--trace-steps", trace_decode_steps,
                              "Lines about so many decoded tokens, after those about the prompt (default: all)");
  static bool ignored = false;  // config.cpp has read them
  program.add_flag("--debug", ignored, "The same as --config debug: verbose, everything traced, NaN looked for");
  program.add_flag("--verbose", ignored, "The same as --log verbose");
  program.add_flag("--quiet", ignored, "The same as --log silent");
  doppler::add_trace_file(program);
  doppler::add_offline(program);
  program.add_option("--config", "Options from a file, from JSON, or a preset: default, bench, debug")
      .type_name("FILE|JSON|PRESET");
}

// The program's exit code, if all that was printed got out. Where there are other ranks, they end with this one.
int finish(int code) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    doppler::say("the output could not be written. See whether the disk is full");
    code = exit_code(doppler::ErrorCode::kFile);
  }
  doppler::leave_ranks(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  doppler::CommandLine program("doppler", "Doppler runs language models on the machine you have.",
                               "doppler " + std::string(doppler::kVersion));
  program.need_verb();
  program.footer(
      "Try:  doppler run \"Tell me a story about a brave cat.\"\nEvery verb has its own --help with an example.");
  doppler::add_run(program);
  doppler::add_serve(program);
  doppler::add_batch(program);
  doppler::add_pull(program);
  doppler::add_cache(program);
  doppler::add_convert(program);
  doppler::add_inspect(program);
  doppler::add_verify(program);
  doppler::add_synth(program);
  doppler::add_bench(program);
  doppler::add_debug(program);
  doppler::add_perplexity(program);
  doppler::add_embed(program);
  doppler::add_tokenize(program);
  doppler::add_devices(program);
  doppler::add_doctor(program);
#if !defined(DOPPLER_NO_GPU)
  doppler::add_test(program);
#endif
  if (argc > 1 && argv[1][0] != '-' && !has_verb(program, argv[1]) && std::string(argv[1]) != "config") {
    doppler::say("there is no verb '{}'. doppler --help lists them", argv[1]);
    return exit_code(doppler::ErrorCode::kUsage);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is then an error of write(), met like a full disk
  doppler::explain_mapped_faults();
  const doppler::TraceFileCloser trace_file;
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    const doppler::Config config = doppler::take_config(arguments);
    doppler::add_config(program, config);
    add_common(program);
    doppler::apply_config(config, program, arguments);
    return finish(program.run(std::move(arguments)));
  } catch (const doppler::CheckFailed&) {
    return finish(1);
  } catch (const doppler::Failure& failure) {
    doppler::say("{}", failure.what());
    return finish(exit_code(failure.error.code));
  } catch (const std::bad_alloc&) {
    doppler::write_stderr("doppler: out of memory. Use a smaller --context, a smaller model, or a machine with more\n");
    return finish(exit_code(doppler::ErrorCode::kMemory));
  } catch (const std::filesystem::filesystem_error& error) {
    doppler::say("the system refused what a file needs: {}", error.what());
    return finish(exit_code(doppler::ErrorCode::kFile));
  } catch (const std::system_error& error) {  // no thread, no descriptor, no socket; or fmt's, of standard output
    if (std::ferror(stdout) == 0) {
      doppler::say("the system refused what the program needs: {}. Raise its limits (ulimit -a), or end other programs",
                   error.what());
    }
    return finish(exit_code(doppler::ErrorCode::kMemory));
  } catch (const std::exception& error) {
    const int bug = exit_code(doppler::ErrorCode::kInternal);
    if (std::ferror(stdout) != 0) return finish(bug);  // fmt throws where standard output takes no more
    doppler::say("something went wrong that should not: {}", error.what());
    return finish(bug);
  }
}
