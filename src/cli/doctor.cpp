// `doppler doctor`: what this machine is, whether it computes what it should, what fits it and what slows it down.
#include "cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/json.h"
#include "base/say.h"
#include "cli/devices.h"
#include "cli/verbs.h"

namespace doppler {
namespace {

using namespace doctor;

constexpr const char* kLevels[] = {"note", "slow", "fault"};
const char* name_of(Level level) { return kLevels[static_cast<size_t>(level)]; }

double gib(double bytes) { return bytes / (1 << 30); }

// What a GPU, or else the memory, reads in a second holds this many tokens' weights; keys and values come on top.
double most_tokens(const Examination& e, const ModelFit& model) {
  const bool gpu = e.adapter() && !e.adapter()->capabilities.software && e.copy_bandwidth > 0;
  return (gpu ? e.copy_bandwidth : e.read_bandwidth) / model.token_bytes;
}
bool fits(const Examination& e, const ModelFit& model) { return model.bytes() <= static_cast<double>(e.memory); }

Json report_json(const Examination& e, const std::vector<Finding>& list) {
  Json json = {{"version", e.version}, {"system", e.system}, {"healthy", healthy(list)}};
  json["cpu"] = {
      {"name", e.cpu.name},         {"cores", e.cpu.cores},   {"kernels", e.cpu.used}, {"availableKernels", e.cpu.sets},
      {"features", e.cpu.features}, {"governor", e.governor}, {"load", e.load}};
  json["memory"] = {{"bytes", e.memory},
                    {"available", e.available},
                    {"largePages", e.large_pages},
                    {"readBytesPerSecond", e.read_bandwidth}};
  Json adapters = Json::array();
  for (const gpu::AdapterInfo& adapter : e.adapters) adapters.push_back(to_json(adapter));
  json["webgpu"] = {{"built", e.gpu_built},
                    {"library", e.library},
                    {"libraryWhy", e.library_why},
                    {"missingGpu", e.missing_gpu},
                    {"adapters", std::move(adapters)},
                    {"device", e.device},
                    {"deviceWhy", e.device_why},
                    {"copyBytesPerSecond", e.copy_bandwidth}};
  json["selfTests"] = Json::array();
  for (const SelfTest& t : e.tests)
    json["selfTests"].push_back({{"what", t.what},
                                 {"checks", t.checks},
                                 {"all", t.all},
                                 {"failed", t.failed},
                                 {"worstOfBound", t.worst},
                                 {"seconds", t.seconds},
                                 {"failures", t.failures}});
  json["models"] = Json::array();
  for (const ModelFit& m : e.models)
    json["models"].push_back({{"name", m.name},
                              {"weightBytes", m.weight_bytes},
                              {"cacheBytes", m.cache_bytes},
                              {"context", m.context},
                              {"fits", fits(e, m)},
                              {"mostTokensPerSecond", most_tokens(e, m)}});
  json["findings"] = Json::array();
  for (const Finding& f : list)
    json["findings"].push_back({{"level", name_of(f.level)}, {"text", f.text}, {"todo", f.todo}});
  return json;
}

void print_machine(const Examination& e) {
  fmt::print("Doppler {} on {}\n\n", e.version, e.system);
  fmt::print("cpu      {}, {} core{}\n", visible(e.cpu.name), e.cpu.cores, e.cpu.cores == 1 ? "" : "s");
  fmt::print("         kernels {} (of {})\n", e.cpu.used, fmt::join(e.cpu.sets, ", "));
  fmt::print("         {}\n", fmt::join(e.cpu.features, " "));
  fmt::print("memory   {:.1f} GiB, {:.1f} free; all cores read {:.1f} GB/s\n", gib(static_cast<double>(e.memory)),
             gib(static_cast<double>(e.available)), e.read_bandwidth / 1e9);
  fmt::print("webgpu   {}\n", !e.library.empty() ? visible(e.library) : e.gpu_built ? "no library" : "not built in");
  if (e.adapters.empty()) fmt::print("gpu      none\n");
  for (size_t i = 0; i < e.adapters.size(); ++i) fmt::print("gpu {}", to_text(i, e.adapters[i]));
  if (e.copy_bandwidth > 0) fmt::print("   copies    {:.1f} GB/s, read and written\n", e.copy_bandwidth / 1e9);
}

void print_tests(const Examination& e) {
  fmt::print("\nself-tests\n");
  for (const SelfTest& t : e.tests) {
    fmt::print("  {:<5} {}: ", t.failed > 0 ? "FAIL" : t.checks == 0 ? "-" : "ok", visible(t.what));
    if (t.checks == 0) {
      fmt::print("not installed\n");
      continue;
    }
    fmt::print("{}{} checks in {:.1f} s", t.checks, t.all > t.checks ? fmt::format(" of {}", t.all) : "", t.seconds);
    if (t.worst > 0) fmt::print(", the worst error {:.2f} of its bound", t.worst);
    fmt::print("{}\n", t.failed > 0 ? fmt::format(", {} failed", t.failed) : "");
    for (const std::string& failure : t.failures) fmt::print("        {}\n", visible(failure));
  }
}

void print_models(const Examination& e) {
  fmt::print("\npublished models in Q4_K_M, with their context of up to 4096 tokens\n");
  for (const ModelFit& m : e.models) {
    fmt::print("  {:<18} {:>6.1f} GiB  ", m.name, gib(m.bytes()));
    if (fits(e, m)) {
      fmt::print("fits{}; at most {:.{}f} tokens/s\n",
                 m.bytes() > static_cast<double>(e.available) ? ", when other programs end" : "", most_tokens(e, m),
                 most_tokens(e, m) < 10 ? 1 : 0);
    } else {
      fmt::print("does not fit\n");
    }
  }
}

void run_doctor(const Options& options, bool as_json) {
  const Examination e = examine(options);
  const std::vector<Finding> list = findings(e);
  if (as_json) {
    fmt::print("{}\n", report_json(e, list).dump(1));
  } else {
    print_machine(e);
    print_tests(e);
    print_models(e);
    fmt::print("\n{}\n", healthy(list) ? "Healthy: every self-test passed." : "Not healthy.");
    for (const Finding& f : list) {
      fmt::print("  {:<5} {}\n", name_of(f.level), visible(f.text));
      if (!f.todo.empty()) fmt::print("        {}\n", f.todo);
    }
  }
  if (!healthy(list)) throw CheckFailed{};
}

}  // namespace

void add_doctor(Verb app) {
  auto options = std::make_shared<Options>();
  auto json = std::make_shared<bool>(false);
  Verb verb =
      app.add_verb("doctor", "Look at this machine: what it is, whether it computes right, what fits, what is slow");
  verb.add_option("--device", options->device, "Which GPU to test, as doppler devices counts them").range(0, 1 << 20);
  verb.add_flag("--full", options->full, "Every case of a GPU's kernels, however long they take");
  verb.finish(*json,
              "The text is fit for a bug report. Exit code 0 when every self-test passed, 1 when one failed.\n"
              "Example:\n  doppler doctor > report.txt",
              [options, json] { run_doctor(*options, *json); });
}

}  // namespace doppler
