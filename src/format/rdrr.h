// RDRR, the artefact Doppler loads: a folder with manifest.json, shard_00000.bin … and the tokenizer's files.
//
// The shards are one long stream of bytes cut into equal pieces (the last is shorter). A tensor lies somewhere in that
// stream, so it may begin in one shard and end in another. Pieces are a multiple of a page long, which lets a reader
// map them back to back: every tensor is then one span of memory again, without a copy.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "format/tensor.h"

namespace doppler {

inline constexpr uint64_t kRdrrShardSize = 64ull << 20;
inline constexpr uint64_t kRdrrShardGrain = 4096;  // shard sizes are multiples of it
inline constexpr uint64_t kRdrrAlignment = 256;    // of a tensor's first byte; also a GPU's binding alignment

// Files of tokenizer, templates and prompts beside manifest and shards, as the checkpoint has them.
inline constexpr std::string_view kRdrrSidecars[] = {
    "tokenizer.json",     "tokenizer_config.json",   "generation_config.json",           "chat_template.jinja",
    "chat_template.json", "special_tokens_map.json", "config_sentence_transformers.json"};

struct RdrrSpan {
  int shard = 0;
  uint64_t offset = 0, size = 0;  // within the shard

  bool operator==(const RdrrSpan&) const = default;
};

struct RdrrTensorEntry {
  std::string name;  // the checkpoint's name
  std::string slot;  // the engine's name ("layer3.q_proj"); empty if it is unknown
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string role;             // embedding, lm_head, matmul, norm, router, expert, other
  std::vector<RdrrSpan> spans;  // in order; more than one where the tensor crosses into the next shard
  uint64_t size = 0;            // of all spans

  uint64_t weights() const;  // product of the shape
};

struct RdrrShard {
  std::string filename;
  uint64_t size = 0;
  std::string hash;  // lower-case hex

  bool operator==(const RdrrShard&) const = default;
};

// What a manifest says, checked against itself. `faults` lists what is wrong with places and sizes, one sentence each;
// values of a wrong type fail at once.
struct RdrrManifest {
  Json json;  // everything, known or not
  std::string hash_algorithm;
  std::vector<RdrrShard> shards;
  std::vector<RdrrTensorEntry> tensors;
  std::vector<std::string> faults;
};
// `tensors` is the content of the file that "tensorsFile" names, or null where the tensors are inline.
RdrrManifest parse_rdrr_manifest(Json manifest, const Json* tensors, const std::string& where);

// The slot a Hugging Face tensor name means, by the names most decoders share; empty if none. A family's
// `post_attention_layernorm` stands before the feed-forward, unless the layer has a norm of that name of its own.
std::string infer_slot(std::string_view name, bool has_pre_feedforward_norm);

// Writes an artefact. Nothing with the final name exists before commit(), and the manifest is written last.
class RdrrWriter {
 public:
  RdrrWriter(const std::filesystem::path& folder, uint64_t shard_size = kRdrrShardSize);
  ~RdrrWriter();

  // A tensor's bytes come in any number of pieces, in order; begin() takes name, slot, dtype, shape and role.
  void begin(RdrrTensorEntry entry);
  void write(std::span<const std::byte> bytes);
  void end();

  const std::filesystem::path& path() const;  // of the unfinished folder: files beside the shards go here
  uint64_t written() const { return position_; }
  const std::vector<RdrrTensorEntry>& tensors() const { return tensors_; }

  // Adds shards, totalSize, hashAlgorithm and tensors to `manifest`, keeping its other keys, and makes the folder
  // take its final name. With `replace`, an artefact of that name gives way at the last moment; files beside it that
  // are none of an artefact's are kept.
  void commit(Json manifest, bool replace = false);

 private:
  void put(std::span<const std::byte> bytes);
  void close_shard();

  std::filesystem::path final_;
  FolderWriter folder_;
  uint64_t shard_size_;
  uint64_t position_ = 0;  // in the stream of all shards
  std::unique_ptr<FileWriter> shard_;
  std::unique_ptr<Sha256> hash_;
  std::vector<RdrrShard> shards_;
  std::vector<RdrrTensorEntry> tensors_;
  bool open_ = false;  // between begin() and end()
};

// An artefact mapped into memory. Movable; tensors stay valid as long as it lives.
class RdrrReader {
 public:
  // `path` is the folder, or the manifest in it. Fails with a sentence on anything that verify() would find without
  // reading the shards.
  static RdrrReader open(const std::filesystem::path& path);
  RdrrReader(RdrrReader&&) noexcept;
  RdrrReader& operator=(RdrrReader&&) noexcept;
  ~RdrrReader();

  const std::filesystem::path& folder() const { return folder_; }
  const Json& manifest() const { return manifest_.json; }
  const std::string& hash_algorithm() const { return manifest_.hash_algorithm; }  // of the shards' hashes
  const std::vector<RdrrShard>& shards() const { return manifest_.shards; }
  const std::vector<RdrrTensorEntry>& entries() const { return manifest_.tensors; }
  const RdrrTensorEntry* find_slot(std::string_view slot) const;
  Tensor tensor(const RdrrTensorEntry& entry) const;  // an entry of this reader

  uint64_t copied_bytes() const;  // of tensors whose spans could not be mapped side by side, or not aligned

  // The artefact's faults, as sentences: structure, missing or wrongly sized shards, and with `hashes` every shard's
  // digest. Empty means sound. `progress` is told the bytes hashed so far and in all.
  static std::vector<std::string> verify(const std::filesystem::path& path, bool hashes = true,
                                         const std::function<void(uint64_t done, uint64_t all)>& progress = {});

 private:
  RdrrReader() = default;
  struct Mapping;

  std::filesystem::path folder_;
  RdrrManifest manifest_;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace doppler
