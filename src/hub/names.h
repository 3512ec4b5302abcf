// What a person types for a model, and which files of a repository that means.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

// hf:org/repo[@revision][:file-or-quantisation], an address on the web, or a path. An address of a repository or file
// on the hub itself (https://…/org/repo/resolve/main/FILE) is a hub name, too.
struct ModelName {
  enum class Kind : uint8_t { kPath, kHub, kWeb };
  Kind kind = Kind::kPath;
  std::string text;       // as it was typed; of a kWeb the address
  std::string repo = {};  // "org/repo"
  std::string revision = "main";
  std::string wanted = {};  // a file of the repository, a quantisation ("Q8_0"), or empty

  std::string id() const;  // "hf:org/repo@main:Q8_0", for messages
};
bool is_remote_name(std::string_view text);  // begins as hf: or a web address do
// `endpoint` is the hub's address. Fails for names that cannot be.
ModelName parse_model_name(const std::string& text, const std::string& endpoint);

// A file of a repository, as the hub lists it.
struct HubFile {
  std::string name;  // "folder/model.gguf", checked: nothing in it leads out of the repository
  uint64_t size = 0;
  // The hub's ETag, which names the blob in the cache: the SHA-256 of a file in LFS, else the SHA-1 that git gives the
  // blob.
  std::string hash;
};

// What of a repository is needed to run it.
struct Choice {
  enum class Kind : uint8_t { kGguf, kCheckpoint, kArtefact };
  Kind kind = Kind::kGguf;
  std::vector<HubFile> files;  // of a GGUF in several parts all of them, in order
  std::string recipe;          // a checkpoint's, where one was named
};

// Of GGUFs the one that was named by file or quantisation, else Q4_K_M, else Q8_0, else the first; where there is none
// an artefact of ours, or a checkpoint in safetensors. Fails with what there is.
Choice choose_files(const std::vector<HubFile>& files, const ModelName& name);

// False for a path that is absolute, leads upwards, or holds what no file's name should.
bool is_safe_path(std::string_view path);

}  // namespace doppler
