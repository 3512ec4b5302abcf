#include "format/rdrr.h"

#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "base/files.h"
#include "format/shard_hash.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::AllOf, ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

struct Made {
  RdrrTensorEntry entry;
  std::vector<std::byte> bytes;
};

Made make(const std::string& slot, DType dtype, std::vector<int64_t> shape, unsigned seed) {
  Made made{{"model." + slot, slot, dtype, std::move(shape), "matmul", {}, 0}, {}};
  const auto cols = static_cast<uint64_t>(made.entry.shape.back());
  made.bytes.resize(made.entry.weights() / cols * row_bytes(dtype, cols));
  std::mt19937 random(seed);
  for (std::byte& b : made.bytes) b = static_cast<std::byte>(random());
  return made;
}

std::vector<Made> some_tensors() {
  return {make("embed", DType::kF32, {37, 100}, 1), make("layer0.q_proj", DType::kQ4_K, {5, 300}, 2),
          make("layer0.attn_norm", DType::kBF16, {3}, 3), make("layer0.experts_down", DType::kMXFP4, {4, 6, 96}, 4),
          make("lm_head", DType::kQ6_K, {64, 257}, 5)};
}

void write_all(const fs::path& folder, const std::vector<Made>& tensors, uint64_t shard_size, size_t piece = 1000) {
  RdrrWriter writer(folder, shard_size);
  for (const Made& made : tensors) {
    writer.begin(made.entry);
    for (std::span<const std::byte> rest = made.bytes; !rest.empty();) {
      const auto part = rest.first(std::min(piece, rest.size()));
      writer.write(part);
      rest = rest.subspan(part.size());
    }
    writer.end();
  }
  writer.commit(Json{{"version", 1}, {"modelId", "test"}, {"keepMe", {{"a", 1}}}});
}

// An artefact whose manifest a test may edit.
class Artefact {
 public:
  explicit Artefact(uint64_t shard_size = 4096) : folder_(scratch_ / "model") {
    write_all(folder_, some_tensors(), shard_size);
    manifest = parse_json(slurp(folder_ / "manifest.json"), "manifest");
  }
  const fs::path& folder() const { return folder_; }
  const fs::path& save() const {
    spill(folder_ / "manifest.json", manifest.dump());
    return folder_;
  }
  std::string open_fails() const {
    return sentence([&] { RdrrReader::open(save()); });
  }
  Json& tensor(const char* name) { return manifest["tensors"][name]; }
  Json manifest;

 private:
  Scratch scratch_;
  fs::path folder_;
};

// KiB of the shards in `folder` that are in this process's memory.
long resident_kib(const fs::path& folder) {
  std::ifstream maps("/proc/self/smaps");
  long total = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(folder.string()) != std::string::npos) ours = true;
    if (ours && line.starts_with("Rss:")) {
      total += std::stol(line.substr(4));
      ours = false;
    }
  }
  return total;
}

TEST(Rdrr, PagesThatWereUsedUpAreGivenBack) {
  const Scratch scratch;
  write_all(scratch / "model", {make("embed", DType::kF32, {1024, 1024}, 1)}, 1 << 20, 1 << 20);
  const RdrrReader reader = RdrrReader::open(scratch / "model");
  const Tensor tensor = reader.tensor(reader.entries().front());
  const std::span<const std::byte> bytes = tensor.bytes;
  const auto sum = [&] {
    unsigned total = 0;
    for (const std::byte b : bytes) total += static_cast<unsigned>(b);
    return total;
  };
  const unsigned before = sum();
  EXPECT_GE(resident_kib(scratch / "model"), 4096);
  drop_mapped_pages(bytes);
  EXPECT_LE(resident_kib(scratch / "model"), 128);
  EXPECT_EQ(sum(), before);
}

TEST(Rdrr, RoundTripsThroughAnyShardSizeWithoutACopy) {
  for (const uint64_t shard_size : {4096ull, 8192ull, 12288ull, 65536ull, 64ull << 20}) {
    for (const size_t piece : {1ul, 999ul, 1ul << 20}) {
      Scratch scratch;
      const auto tensors = some_tensors();
      write_all(scratch / "m", tensors, shard_size, piece);
      EXPECT_THAT(RdrrReader::verify(scratch / "m"), IsEmpty());
      const RdrrReader reader = RdrrReader::open(scratch / "m");
      ASSERT_EQ(reader.entries().size(), tensors.size());
      EXPECT_EQ(reader.copied_bytes(), 0u);
      EXPECT_EQ(reader.manifest()["keepMe"]["a"], 1);
      for (const Made& made : tensors) {
        const RdrrTensorEntry* entry = reader.find_slot(made.entry.slot);
        ASSERT_NE(entry, nullptr);
        const Tensor tensor = reader.tensor(*entry);
        EXPECT_EQ(tensor.name, made.entry.name);
        EXPECT_EQ(tensor.dtype, made.entry.dtype);
        EXPECT_EQ(tensor.shape, made.entry.shape);
        ASSERT_EQ(tensor.bytes.size(), made.bytes.size());
        EXPECT_EQ(std::memcmp(tensor.bytes.data(), made.bytes.data(), made.bytes.size()), 0) << made.entry.slot;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % kRdrrAlignment, 0u);
      }
    }
  }
}

TEST(Rdrr, ATensorAcrossShardsIsListedWithItsSpans) {
  const Artefact artefact;
  const RdrrReader reader = RdrrReader::open(artefact.folder());
  const RdrrTensorEntry* entry = reader.find_slot("embed");  // 14 800 bytes from the start
  EXPECT_THAT(entry->spans, ElementsAre(RdrrSpan{0, 0, 4096}, RdrrSpan{1, 0, 4096}, RdrrSpan{2, 0, 4096},
                                        RdrrSpan{3, 0, 14800 - 3 * 4096}));
  EXPECT_EQ(artefact.manifest["tensors"]["model.embed"]["spans"].size(), 4u);
  EXPECT_EQ(artefact.manifest["tensors"]["model.layer0.q_proj"]["dtype"], "Q4_K_M");
}

TEST(Rdrr, SpansThatCannotBeMappedSideBySideAreCopied) {
  // Shards of odd sizes, as another writer may make them: the same stream cut every 1000 bytes.
  Scratch scratch;
  const Made made = make("embed", DType::kF32, {25, 100}, 7);
  write_all(scratch / "m", {made}, 65536);
  const std::string stream = slurp(scratch / "m" / "shard_00000.bin");
  Json manifest = parse_json(slurp(scratch / "m" / "manifest.json"), "manifest");
  Json shards = Json::array(), spans = Json::array();
  for (size_t i = 0; i < 10; ++i) {
    const std::string piece = stream.substr(i * 1000, 1000);
    const std::string name = "piece" + std::to_string(i);
    spill(scratch / "m" / name, piece);
    shards.push_back({{"filename", name}, {"size", 1000}, {"hash", sha256_hex(std::as_bytes(std::span(piece)))}});
    spans.push_back({{"shardIndex", i}, {"offset", 0}, {"size", 1000}});
  }
  manifest["shards"] = shards;
  manifest["tensors"]["model.embed"]["spans"] = spans;
  spill(scratch / "m" / "manifest.json", manifest.dump());
  EXPECT_THAT(RdrrReader::verify(scratch / "m"), IsEmpty());
  const RdrrReader reader = RdrrReader::open(scratch / "m" / "manifest.json");
  EXPECT_EQ(reader.copied_bytes(), 10000u);
  EXPECT_EQ(std::memcmp(reader.tensor(reader.entries()[0]).bytes.data(), made.bytes.data(), 10000), 0);
}

TEST(Rdrr, TensorsMayStandInAFileOfTheirOwn) {
  Artefact artefact;
  spill(artefact.folder() / "tensors.json", artefact.manifest["tensors"].dump());
  artefact.manifest.erase("tensors");
  artefact.manifest["tensorsFile"] = "tensors.json";
  EXPECT_EQ(RdrrReader::open(artefact.save()).entries().size(), 5u);
  artefact.manifest["tensorsFile"] = "../model/tensors.json";
  EXPECT_THAT(artefact.open_fails(), HasSubstr("plain file name"));
  artefact.manifest["tensorsFile"] = "nothing.json";
  EXPECT_THAT(artefact.open_fails(), HasSubstr("nothing.json"));
}

TEST(Rdrr, AFlippedBitIsFoundByVerify) {
  const Artefact artefact;
  testing::flip_bit(artefact.folder() / "shard_00002.bin", 77);
  EXPECT_THAT(RdrrReader::verify(artefact.folder()), ElementsAre(HasSubstr("shard_00002.bin has another sha256")));
  EXPECT_THAT(RdrrReader::verify(artefact.folder(), /*hashes=*/false), IsEmpty());
}

TEST(Rdrr, ATruncatedOrMissingShardIsRefused) {
  const Artefact artefact;
  fs::resize_file(artefact.folder() / "shard_00001.bin", 4095);
  EXPECT_THAT(artefact.open_fails(), HasSubstr("shard_00001.bin has 4095 bytes, but the manifest says 4096"));
  fs::remove(artefact.folder() / "shard_00001.bin");
  EXPECT_THAT(artefact.open_fails(), HasSubstr("shard_00001.bin is missing"));
  EXPECT_THAT(RdrrReader::verify(artefact.folder()), ElementsAre(HasSubstr("shard_00001.bin is missing")));
}

TEST(Rdrr, AManifestThatIsNotJsonIsRefused) {
  Artefact artefact;
  spill(artefact.folder() / "manifest.json", "{\"version\": 1, \"shards\": [");
  EXPECT_THAT(sentence([&] { RdrrReader::open(artefact.folder()); }), HasSubstr("not valid JSON"));
  artefact.manifest = Json::array({1, 2});
  EXPECT_THAT(artefact.open_fails(), HasSubstr("not a JSON object"));
}

TEST(Rdrr, PlacesThatCannotBeAreRefused) {
  const auto broken = [](auto&& edit) {
    Artefact artefact;
    edit(artefact);
    return artefact.open_fails();
  };
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.lm_head")["spans"][0]["offset"] = 4000; }),
              HasSubstr("model.lm_head lies past the end of shard_"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["shard"] = 99; }), HasSubstr("only 11"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["offset"] = -1; }),
              HasSubstr("out of range"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["offset"] = 18446744073709551615ull; }),
              HasSubstr("out of range"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["offset"] = "5"; }), HasSubstr("wrong type"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["shape"] = {4}; }), HasSubstr("takes 8"));
  EXPECT_THAT(broken([](Artefact& a) {
                a.tensor("model.layer0.attn_norm")["shape"] = {1ll << 40, 1ll << 40};
              }),
              HasSubstr("out of range"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["shape"] = {1, 1, 1, 1, 1, 1, 1, 1, 3}; }),
              HasSubstr("dimensions"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["shape"] = Json::array(); }),
              HasSubstr("has 6 bytes, but [1] in BF16 takes 2"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["dtype"] = "F13"; }),
              HasSubstr("unknown dtype F13"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["layout"] = "column"; }),
              HasSubstr("column"));
  EXPECT_THAT(broken([](Artefact& a) { a.tensor("model.layer0.attn_norm")["slot"] = "embed"; }),
              HasSubstr("both claim to be embed"));
  EXPECT_THAT(broken([](Artefact& a) {
                Json& q = a.tensor("model.layer0.q_proj");
                Json& n = a.tensor("model.layer0.attn_norm");
                n["shard"] = q["shard"];
                n["offset"] = q["offset"];
              }),
              HasSubstr("overlap"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest["version"] = 2; }), HasSubstr("version"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest["shards"] = Json::array(); }), HasSubstr("number of shards"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest["tensors"] = Json::object(); }), HasSubstr("no tensors"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest.erase("tensors"); }), HasSubstr("'tensors'"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest["totalSize"] = 5; }), HasSubstr("add up"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest["shards"][3]["index"] = 4; }), HasSubstr("place 3"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest["shards"][3]["offset"] = 4; }), HasSubstr("begins at byte"));
  EXPECT_THAT(broken([](Artefact& a) { a.manifest["shards"][3]["filename"] = "../x"; }), HasSubstr("plain file name"));
}

TEST(Rdrr, AShardMayNotTakeTheNameOfAnotherFile) {
  for (const char* name : {"info.json", "manifest.json", "tensors.json", "tokenizer.json", "tokenizer_config.json",
                           "generation_config.json", "chat_template.jinja", "shard_00000.bin.part"}) {
    Artefact artefact;
    artefact.manifest["shards"][3]["filename"] = name;
    EXPECT_THAT(artefact.open_fails(),
                AllOf(HasSubstr("belongs to another file"), HasSubstr("shards[3]"), HasSubstr(name)));
  }
  for (const char* name : {"", ".", "..", "a/b", "a\\b", "a\nb", "\x1b[31m"}) {
    Artefact artefact;
    artefact.manifest["shards"][3]["filename"] = name;
    EXPECT_THAT(artefact.open_fails(), HasSubstr("not a plain file name"));
  }
  Artefact artefact;
  artefact.manifest["tensorsFile"] = "shard_00003.bin";
  EXPECT_THAT(artefact.open_fails(), HasSubstr("belongs to another file"));
}

TEST(Rdrr, AShardListedTwiceIsRefused) {
  Artefact artefact;
  artefact.manifest["shards"][3]["filename"] = "shard_00001.bin";
  EXPECT_THAT(artefact.open_fails(),
              AllOf(HasSubstr("same name"), HasSubstr("shards[3]"), HasSubstr("shard_00001.bin")));
  EXPECT_THAT(sentence([&] { RdrrReader::verify(artefact.folder()); }), HasSubstr("same name"));
}

TEST(Rdrr, NoChangeOfTheManifestCrashesTheReader) {
  const Artefact artefact;
  const std::string whole = slurp(artefact.folder() / "manifest.json");
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 20); break;
        case 2: text.insert(at, std::string(1 + random() % 12, "0123456789-\"{}[],:"[random() % 18])); break;
        default: text.resize(at); break;
      }
      if (text.empty()) text = "0";
    }
    spill(artefact.folder() / "manifest.json", text);
    try {
      const RdrrReader reader = RdrrReader::open(artefact.folder());
      for (const RdrrTensorEntry& entry : reader.entries()) {
        const Tensor tensor = reader.tensor(entry);
        volatile std::byte last = tensor.bytes.back();  // what it vouches for can be read
        (void)last;
      }
    } catch (const Failure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Rdrr, VerifyListsEveryFaultNotJustTheFirst) {
  Artefact artefact;
  artefact.tensor("model.layer0.attn_norm")["shape"] = {4};
  artefact.tensor("model.lm_head")["dtype"] = "F13";
  fs::remove(artefact.folder() / "shard_00001.bin");
  testing::flip_bit(artefact.folder() / "shard_00000.bin", 0);
  EXPECT_EQ(RdrrReader::verify(artefact.save()).size(), 4u);
}

TEST(Rdrr, AFlatPackedStreamIsRecognisedAndNotReadRowWise) {
  // 4 rows of 384: row-wise 4 · 2 blocks, flat 6 blocks.
  Scratch scratch;
  write_all(scratch / "m", {make("embed", DType::kQ4_K, {4, 512}, 1)}, 65536);
  Json manifest = parse_json(slurp(scratch / "m" / "manifest.json"), "manifest");
  Json& tensor = manifest["tensors"]["model.embed"];
  tensor["shape"] = {4, 384};
  tensor["size"] = 6 * 144;
  spill(scratch / "m" / "manifest.json", manifest.dump());
  EXPECT_THAT(sentence([&] { RdrrReader::open(scratch / "m"); }), HasSubstr("flat stream of Q4_K blocks"));
  tensor["size"] = 8 * 144;
  spill(scratch / "m" / "manifest.json", manifest.dump());
  EXPECT_EQ(RdrrReader::open(scratch / "m").entries().size(), 1u);
}

TEST(Rdrr, AnEmptyShapeIsAScalar) {
  Scratch scratch;
  write_all(scratch / "m", {make("layer0.scale", DType::kF32, {1}, 1)}, 65536);
  Json manifest = parse_json(slurp(scratch / "m" / "manifest.json"), "manifest");
  manifest["tensors"]["model.layer0.scale"]["shape"] = Json::array();
  spill(scratch / "m" / "manifest.json", manifest.dump());
  EXPECT_THAT(RdrrReader::verify(scratch / "m"), IsEmpty());
  EXPECT_THAT(RdrrReader::open(scratch / "m").entries()[0].shape, ElementsAre(1));
}

TEST(Rdrr, HashesItCannotComputeAreSaidSo) {
  Artefact artefact;
  artefact.manifest["hashAlgorithm"] = "md5";
  EXPECT_EQ(RdrrReader::open(artefact.save()).hash_algorithm(), "md5");
  EXPECT_THAT(sentence([&] { RdrrReader::verify(artefact.folder()); }),
              HasSubstr("expected sha256 or blake3, got md5"));
  EXPECT_THAT(RdrrReader::verify(artefact.folder(), false), IsEmpty());
}

TEST(Rdrr, Blake3IsCheckedWhereverAManifestHasIt) {
  for (const char* key : {"hash", "blake3"}) {
    Scratch scratch;
    write_all(scratch / "m", {make("layer0.scale", DType::kF32, {1000}, 1)}, 65536);
    Json manifest = parse_json(slurp(scratch / "m" / "manifest.json"), "manifest");
    const std::string bytes = slurp(scratch / "m" / "shard_00000.bin");
    ShardHash hash("blake3");
    hash.update(std::as_bytes(std::span(bytes)));
    manifest["hashAlgorithm"] = "blake3";
    manifest["shards"][0].erase("hash");
    manifest["shards"][0][key] = hash.finish("");
    spill(scratch / "m" / "manifest.json", manifest.dump());
    EXPECT_THAT(RdrrReader::verify(scratch / "m"), IsEmpty()) << key;
    testing::flip_bit(scratch / "m" / "shard_00000.bin", 100);
    EXPECT_THAT(RdrrReader::verify(scratch / "m"), ElementsAre(HasSubstr("another blake3"))) << key;
  }
}

TEST(Rdrr, OtherFoldersAreToldApart) {
  Scratch scratch;
  EXPECT_THAT(sentence([&] { RdrrReader::open(scratch / "nowhere"); }), HasSubstr("no model here"));
  EXPECT_THAT(sentence([&] { RdrrReader::open(scratch.path()); }), HasSubstr("not an artefact"));
  EXPECT_THAT(sentence([&] { RdrrReader::open(DOPPLER_TEST_DATA "/models/llama-a"); }), HasSubstr("doppler convert"));
}

TEST(Rdrr, AnUnfinishedWriterLeavesNothing) {
  Scratch scratch;
  {
    RdrrWriter writer(scratch / "m", 4096);
    const Made made = make("embed", DType::kF32, {100, 100}, 1);
    writer.begin(made.entry);
    writer.write(std::span(made.bytes).first(10000));
    EXPECT_EQ(scratch.names().size(), 2u) << "the unfinished folder and a lock";
    EXPECT_FALSE(fs::exists(scratch / "m"));
  }
  EXPECT_THAT(scratch.names(), IsEmpty());
}

TEST(Rdrr, CommitKeepsAnExistingArtefactUnlessItMayReplaceIt) {
  Scratch scratch;
  write_all(scratch / "m", {make("embed", DType::kF32, {2, 3}, 1)}, 4096);
  const std::string before = slurp(scratch / "m" / "manifest.json");
  EXPECT_THAT(sentence([&] {
                write_all(scratch / "m", {make("embed", DType::kF32, {4, 3}, 1)}, 4096);
              }),
              HasSubstr("already there"));
  EXPECT_EQ(slurp(scratch / "m" / "manifest.json"), before);
  {
    RdrrWriter writer(scratch / "m", 4096);
    const Made made = make("embed", DType::kF32, {5, 3}, 1);
    writer.begin(made.entry);
    writer.write(made.bytes);
    writer.end();
    writer.commit(Json{{"version", 1}}, /*replace=*/true);
  }
  EXPECT_EQ(RdrrReader::open(scratch / "m").entries()[0].shape, (std::vector<int64_t>{5, 3}));
  EXPECT_THAT(scratch.names(), ElementsAre("m"));
}

TEST(Rdrr, ShardSizesThatCannotBeMappedBackToBackAreRefused) {
  Scratch scratch;
  EXPECT_THAT(sentence([&] { RdrrWriter writer(scratch / "m", 1000); }), HasSubstr("multiple of 4096"));
  EXPECT_THAT(sentence([&] { RdrrWriter writer(scratch / "m", 0); }), HasSubstr("multiple of 4096"));
  EXPECT_THAT(scratch.names(), IsEmpty());
}

TEST(RdrrSlots, CommonNamesAreUnderstood) {
  EXPECT_EQ(infer_slot("model.embed_tokens.weight", false), "embed");
  EXPECT_EQ(infer_slot("language_model.model.layers.12.self_attn.q_proj.weight", true), "layer12.q_proj");
  EXPECT_EQ(infer_slot("model.language_model.layers.0.mlp.down_proj.weight", true), "layer0.down_proj");
  EXPECT_EQ(infer_slot("model.layers.3.post_attention_layernorm.weight", false), "layer3.pre_ffn_norm");
  EXPECT_EQ(infer_slot("model.layers.3.post_attention_layernorm.weight", true), "layer3.post_attn_norm");
  EXPECT_EQ(infer_slot("language_model.lm_head.weight", false), "lm_head");
  EXPECT_EQ(infer_slot("model.layers.x.mlp.up_proj.weight", false), "");
  EXPECT_EQ(infer_slot("model.layers.3", false), "");
  EXPECT_EQ(infer_slot("model.layers.99999999999999.mlp.up_proj.weight", false), "");
  EXPECT_EQ(infer_slot("vision_tower.patch.weight", false), "");
}

}  // namespace
}  // namespace doppler
