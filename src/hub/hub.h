// Models by name: what a person types becomes a path on this machine.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/cache.h"
#include "hub/download.h"

namespace doppler {

struct PullOptions {
  HubSettings settings;
  DownloadOptions download;
  HttpClient::Limits limits;
  // What is going on, for a bar: a label, how far, of how much, in which unit ("B", "weights").
  std::function<void(const std::string& label, const std::string& unit, uint64_t done, uint64_t all)> progress = {};
  std::function<void(const std::string& line)> say = {};  // a line for a person
  std::function<bool()> cancelled = {};
};

// What a name means now, and how much of it is here.
struct PullPlan {
  ModelName name;
  std::string commit = {};  // empty for what comes from elsewhere than the hub
  Choice choice = {};
  std::string etag = {};    // of what comes from elsewhere
  uint64_t bytes = 0;       // of all files
  uint64_t missing = 0;     // of them, still to be fetched
  bool from_cache = false;  // the hub was not asked, or did not answer
};
PullPlan plan_pull(const ModelName& name, const PullOptions& options);

// Fetches what is missing. Returns the GGUF file, or the folder of the checkpoint or artefact.
std::filesystem::path fetch(const PullPlan& plan, const PullOptions& options);

// The bytes at the beginning of the plan's first file, of which only those are fetched that are not here.
std::string fetch_head(const PullPlan& plan, uint64_t bytes, const PullOptions& options);

// What the caller does with a model: runs it (a checkpoint is converted first, once), or reads what was published.
enum class ModelUse { kRun, kSource };

// What the plan means, ready for its use.
std::filesystem::path obtain(const PullPlan& plan, ModelUse use, const PullOptions& options);

// The one way from what a person typed to a path: hub names and addresses are fetched, folders and files recognised
// (import/recognise.h). The path is an artefact's folder, a GGUF file or, for kSource, a checkpoint's folder.
std::filesystem::path resolve_model(const std::string& text, ModelUse use, const PullOptions& options);

}  // namespace doppler
