// Where models are kept. What comes from the hub lies as Hugging Face's own programs keep it, so that both find what
// the other fetched:
//   HUB/models--org--repo/blobs/HASH                  a file's bytes, under the hub's ETag; HASH.incomplete until whole
//   HUB/models--org--repo/snapshots/COMMIT/NAME       → ../../blobs/HASH, relative
//   HUB/models--org--repo/refs/main                   the commit that the revision was when last asked for
//   HUB/.locks/models--org--repo/HASH.lock            locked (flock) by who writes the blob
// and beside it what is Doppler's own:
//   OWN/artefacts/org--repo/COMMIT/RECIPE             checkpoints converted
//   OWN/hashes                                        of shards that were read (engine/shard_check.h)
//   OWN/web/KEY/{FILE → blobs/HASH, blobs, address}   files from other places; KEY is the address's hash
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/names.h"

namespace doppler {

struct HubSettings {
  std::filesystem::path hub;  // HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME or ~/.cache, then huggingface/hub
  std::filesystem::path own;  // DOPPLER_CACHE, else XDG_CACHE_HOME or ~/.cache, then doppler
  std::string endpoint;       // HF_ENDPOINT, else the hub's address
  std::string token;          // HF_TOKEN, else the file HF_TOKEN_PATH, else HF_HOME/token
  bool offline = false;       // HF_HUB_OFFLINE
};
HubSettings settings_from_environment();

// Holds a file for one writer; others wait. The file stays behind, empty, since removing it would let two in.
class FileLock {
 public:
  // Calls `waiting` once if another holds it; `cancelled` ends the wait in a failure.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waiting,
           const std::function<bool()>& cancelled);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

// One repository's folder of the hub's cache.
class RepoCache {
 public:
  RepoCache(const HubSettings& settings, const std::string& repo);

  std::filesystem::path folder() const { return folder_; }
  std::filesystem::path blob(const std::string& hash) const { return folder_ / "blobs" / hash; }
  std::filesystem::path lock(const std::string& hash) const { return locks_ / (hash + ".lock"); }
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  std::string commit_of(const std::string& revision) const;  // empty if it was never asked for
  void remember(const std::string& revision, const std::string& commit) const;
  void link(const std::string& commit, const HubFile& file) const;  // to a blob that is there
  std::vector<HubFile> files(const std::string& commit) const;      // those that are there, whole

 private:
  std::filesystem::path folder_, locks_;
};

std::filesystem::path artefact_folder(const HubSettings& settings, const std::string& repo, const std::string& commit,
                                      const std::string& recipe);
std::filesystem::path web_folder(const HubSettings& settings, const std::string& address);

// A symbolic link of this name, in one step: whatever had the name before is replaced.
void replace_link(const std::filesystem::path& target, const std::filesystem::path& link);

// What the caches hold, for list, du and rm.
struct CachedModel {
  std::string name;                                   // "hf:org/repo", or an address without its query
  std::vector<std::string> revisions;                 // "main (0123abcd)", or commits
  std::vector<std::string> contents;                  // "model-Q4_K_M.gguf", "safetensors", "artefact q4_k_m"
  uint64_t blobs = 0, unfinished = 0, artefacts = 0;  // bytes
  std::vector<std::filesystem::path> folders;         // all that belongs to it

  uint64_t bytes() const { return blobs + unfinished + artefacts; }
};
std::vector<CachedModel> cached_models(const HubSettings& settings);

// Removes a model, one of its revisions (with the blobs that no other uses), or one file of it; returns the bytes that
// are free now. Fails if nothing of that name is there.
uint64_t remove_cached(const HubSettings& settings, const ModelName& name, bool revision_named, bool dry_run);

bool is_commit(std::string_view text);  // forty hexadecimal digits

}  // namespace doppler
