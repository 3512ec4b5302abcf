#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/say.h"
#include "cli/artefact_report.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "format/decode.h"
#include "format/rdrr.h"
#include "model/weights.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

struct VerifyArguments {
  std::string model;
  bool no_hashes = false, json = false;
};

// What can be checked once the tensors are where the manifest says: the model's numbers against them.
void check_content(const fs::path& path, std::vector<std::string>& faults) {
  const RdrrReader reader = RdrrReader::open(path);
  const ModelConfig config = read_model_config(reader.manifest(), "manifest.json");
  Weights weights;
  for (const RdrrTensorEntry& entry : reader.entries()) {
    if (entry.slot.empty())
      faults.push_back(fmt::format("{} is there, but nothing is known by that name", entry.name));
    else
      weights.add(entry.slot, reader.tensor(entry));
  }
  for (std::string& fault : weight_faults(build_plan(config), weights)) faults.push_back(std::move(fault));
  if (const Json* tokenizer = find(reader.manifest(), "tokenizer")) {
    const std::string file = string_or(*tokenizer, "file", "tokenizer.json", "manifest.json: tokenizer");
    if (!is_file(reader.folder() / file)) faults.push_back(fmt::format("the tokenizer {} is missing", file));
  }
}

// A model without hashes: loading it holds every tensor against the config; its weights must be numbers.
std::vector<std::string> weights_at_fault(const fs::path& path, bool read, uint64_t& done) {
  const LoadedModel model = LoadedModel::load(path);
  std::vector<std::string> faults;
  uint64_t all = 0;
  for (const auto& [slot, tensor] : model.weights.all()) all += tensor.byte_size();
  Progress progress("verify", "B");
  std::vector<float> values;
  for (const auto& [slot, tensor] : model.weights.all()) {
    if (!read) break;
    values.resize(static_cast<size_t>(tensor.cols()));
    for (int64_t row = 0; row < tensor.rows(); ++row) {
      decode_row(tensor.dtype, tensor.row(row), values.data(), values.size());
      if (all_finite(values.data(), values.size())) continue;
      faults.push_back(fmt::format("{}, row {}: a weight is not a finite number", tensor.name, row));
      break;
    }
    drop_mapped_pages(tensor.bytes);
    done += tensor.byte_size();
    progress.update(done, all);
  }
  return faults;
}

std::vector<std::string> find_faults(const fs::path& path, bool hashes, uint64_t& hashed) {
  std::vector<std::string> faults;
  try {
    if (model_kind(path) != ModelKind::kRdrr) return weights_at_fault(path, hashes, hashed);
    Progress progress("verify", "B");
    faults = RdrrReader::verify(path, hashes, [&](uint64_t done, uint64_t all) {
      progress.update(done, all);
      hashed = done;
    });
    // Bytes that changed do not move the tensors: all but the hashes must be sound to look further.
    if (faults.empty() || (hashes && RdrrReader::verify(path, false).empty())) check_content(path, faults);
  } catch (const Failure& failure) {
    // A manifest that cannot be read is a fault; a path that is not there, or a hash we cannot compute, is an error.
    if (failure.error.code != ErrorCode::kFormat) throw;
    faults.push_back(failure.what());
  }
  return faults;
}

void run_verify(const VerifyArguments& arguments) {
  const fs::path path = local_model(arguments.model);
  uint64_t hashed = 0;
  const std::vector<std::string> faults = find_faults(path, !arguments.no_hashes, hashed);
  if (arguments.json) {
    fmt::print(
        "{}\n",
        Json{{"model", path.string()}, {"sound", faults.empty()}, {"bytes_hashed", hashed}, {"faults", faults}}.dump(
            1));
  } else if (faults.empty()) {
    const bool artefact = model_kind(path) == ModelKind::kRdrr;
    fmt::print("{} is sound: every tensor is in its place and fits the config{}\n", visible(path.string()),
               arguments.no_hashes
                   ? artefact ? "; hashes were not checked" : "; weights were not read"
                   : fmt::format(", {} of {}", megabytes(hashed),
                                 artefact ? "shards match their hashes" : "weights are finite numbers"));
  } else {
    fmt::print("{} has {} fault{}:\n", visible(path.string()), faults.size(), faults.size() == 1 ? "" : "s");
    for (const std::string& fault : faults) fmt::print("  {}\n", visible(fault));
  }
  if (!faults.empty()) throw CheckFailed{};
}

}  // namespace

void add_verify(Verb app) {
  auto arguments = std::make_shared<VerifyArguments>();
  Verb verb = app.add_verb("verify", "Check a model: places and sizes, config against tensors, hashes or weights");
  verb.add_option("model", arguments->model, kModelHelp);
  verb.add_flag("--no-hashes", arguments->no_hashes, "Leave the weights' bytes unread");
  verb.finish(arguments->json,
              "An artefact has hashes of its shards; of any other model every weight must be a finite number.\n"
              "Exits with 0 if the model is sound, with 1 and a list of faults if not.\n"
              "Example:\n  doppler verify models/tiny",
              [arguments] { run_verify(*arguments); });
}

}  // namespace doppler
