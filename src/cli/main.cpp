#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "cli/config.h"
#include "cli/verbs.h"

namespace {

bool has_verb(const CLI::App& app, const std::string& name) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->check_name(name)) return true;
  }
  return false;
}

// --log, --trace and --config belong to every verb.
void add_common(CLI::App& app) {
  app.add_option_function<std::string>("--log", doppler::set_log_level, "How much is said: silent, info or verbose")
      ->default_str("info");
  app.add_option_function<std::string>("--trace", doppler::set_trace,
                                       "Lines about loader, kernels, logits, embed, attn, ffn, kv, sample, buffers, "
                                       "perf or all; -subject takes one out");
  app.add_option("--config", "Options from a file, from JSON, or a preset: default, bench, debug")
      ->type_name("FILE|JSON|PRESET");
  for (CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    verb->fallthrough();
    for (CLI::App* inner : verb->get_subcommands([](const CLI::App*) { return true; })) inner->fallthrough();
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Doppler runs language models on the machine you have."};
  app.name("doppler");
  app.set_version_flag("--version", "doppler " + std::string(doppler::kVersion));
  app.require_subcommand(1);
  app.footer(
      "Try:  doppler run \"Tell me a story about a brave cat.\"\nEvery verb has its own --help with an example.");
  doppler::add_run(app);
  doppler::add_convert(app);
  doppler::add_inspect(app);
  doppler::add_verify(app);
  doppler::add_synth(app);
  doppler::add_bench(app);
  doppler::add_debug(app);
  doppler::add_perplexity(app);
  doppler::add_tokenize(app);
  doppler::add_devices(app);
  doppler::add_test(app);
  if (argc > 1 && argv[1][0] != '-' && !has_verb(app, argv[1]) && std::string(argv[1]) != "config") {
    fmt::print(stderr, "doppler: there is no verb '{}'. doppler --help lists them\n", argv[1]);
    return exit_code(doppler::ErrorCode::kUsage);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is then an error of write(), met like a full disk
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    const doppler::Config config = doppler::take_config(arguments);
    doppler::add_config(app, config);
    add_common(app);
    doppler::apply_config(config, app, arguments);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // prints help, the version, or what was wrong
    return code == 0 ? 0 : exit_code(doppler::ErrorCode::kUsage);
  } catch (const doppler::CheckFailed&) {
    return 1;
  } catch (const doppler::Failure& failure) {
    fmt::print(stderr, "doppler: {}\n", failure.what());
    return exit_code(failure.error.code);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "doppler: out of memory. Use a smaller --context, a smaller model, or a machine with more\n");
    return exit_code(doppler::ErrorCode::kMemory);
  } catch (const std::exception& error) {
    fmt::print(stderr, "doppler: something went wrong that should not: {}\n", error.what());
    return exit_code(doppler::ErrorCode::kInternal);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "doppler: the output could not be written\n");
    return exit_code(doppler::ErrorCode::kFile);
  }
  return 0;
}
