// Hashes of shards: read once, read again when a file may be another, and never a reason not to run but a wrong one.
#include "engine/shard_check.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "format/shard_hash.h"
#include "support/scratch.h"

namespace doppler {
namespace {

// An artefact of three shards, the last one shorter.
class ShardCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RdrrWriter writer(folder_, kRdrrShardGrain);
    const std::vector<std::byte> bytes(2 * kRdrrShardGrain + 1024, std::byte{7});
    RdrrTensorEntry entry;
    entry.name = "norm";
    entry.slot = "final_norm";
    entry.shape = {static_cast<int64_t>(bytes.size() / 4)};
    writer.begin(entry);
    writer.write(bytes);
    writer.end();
    writer.commit(Json{{"version", 1}, {"modelId", "shards"}});
    for (int i = 0; i < 3; ++i) age(i, -3600);
  }
  fs::path shard(int i) const { return folder_ / ("shard_0000" + std::to_string(i) + ".bin"); }
  void age(int i, int seconds) const {
    fs::last_write_time(shard(i), fs::file_time_type::clock::now() + std::chrono::seconds(seconds));
  }
  void flip(int i) const {
    const auto time = fs::last_write_time(shard(i));
    testing::flip_bit(shard(i), 100);
    fs::last_write_time(shard(i), time);
  }
  // Bytes that a check reads.
  uint64_t check() const {
    const RdrrReader reader = RdrrReader::open(folder_);
    ShardCheck check(reader, record_);
    check.finish();
    return check.bytes_read();
  }
  static constexpr uint64_t kAll = 2 * kRdrrShardGrain + 1024;

  Scratch scratch_;
  const fs::path folder_ = scratch_ / "model", record_ = scratch_ / "cache" / "hashes";
};

TEST_F(ShardCheckTest, ReadsEachShardOnce) {
  EXPECT_EQ(check(), kAll);
  EXPECT_EQ(check(), 0u);
  fs::rename(folder_, scratch_ / "elsewhere");
  fs::rename(scratch_ / "elsewhere", folder_);
  EXPECT_EQ(check(), 0u);
}

TEST_F(ShardCheckTest, ChecksBlake3Likewise) {
  Json manifest = parse_json(testing::slurp(folder_ / "manifest.json"), "manifest");
  manifest["hashAlgorithm"] = "blake3";
  for (int i = 0; i < 3; ++i) {
    const std::string bytes = testing::slurp(shard(i));
    ShardHash hash("blake3");
    hash.update(std::as_bytes(std::span(bytes)));
    manifest["shards"][static_cast<size_t>(i)]["hash"] = hash.finish("");
  }
  testing::spill(folder_ / "manifest.json", manifest.dump());
  EXPECT_EQ(check(), kAll);
  EXPECT_EQ(check(), 0u);
  flip(1);
  age(1, -1800);
  EXPECT_NE(testing::sentence([&] { check(); }).find("expected blake3 "), std::string::npos);
}

TEST_F(ShardCheckTest, ReadsAgainWhatMayBeAnother) {
  EXPECT_EQ(check(), kAll);
  age(1, -1800);
  EXPECT_EQ(check(), kRdrrShardGrain) << "another time";
  EXPECT_EQ(check(), 0u);
  const std::string bytes = slurp(shard(2));
  const auto time = fs::last_write_time(shard(2));
  spill(scratch_ / "copy", bytes);
  fs::rename(scratch_ / "copy", shard(2));
  fs::last_write_time(shard(2), time);
  EXPECT_EQ(check(), 1024u) << "another inode of the same time and size";
  EXPECT_EQ(check(), 0u);
}

TEST_F(ShardCheckTest, NamesTheShardThatIsWrong) {
  flip(1);
  for (int i = 0; i < 2; ++i) {  // and is not remembered
    const std::string said = sentence([&] { check(); });
    EXPECT_NE(said.find("shard_00001.bin): expected sha256 "), std::string::npos) << said;
    const std::string bytes = slurp(shard(1));
    EXPECT_NE(said.find("got " + sha256_hex(std::as_bytes(std::span(bytes)))), std::string::npos) << said;
  }
}

TEST_F(ShardCheckTest, AHashOfAnotherManifestIsNoExcuse) {
  EXPECT_EQ(check(), kAll);
  Json manifest = parse_json(slurp(folder_ / "manifest.json"), "manifest.json");
  manifest["shards"][0]["hash"] = std::string(64, 'a');
  spill(folder_ / "manifest.json", manifest.dump());
  EXPECT_NE(sentence([&] { check(); }).find("shard_00000.bin"), std::string::npos);
}

TEST_F(ShardCheckTest, WhatJustChangedIsNotRemembered) {
  for (int i = 0; i < 3; ++i) age(i, 0);
  EXPECT_EQ(check(), kAll);
  EXPECT_EQ(check(), kAll);
}

TEST_F(ShardCheckTest, ARecordThatCannotBeUsedIsNoError) {
  const std::vector<std::string> spoilt = {"",
                                           "\n\n",
                                           "nonsense",
                                           std::string(64, 'g') + " 1 2 3 4 /a\n",
                                           std::string(64, 'a') + " 1 2\n",
                                           std::string(100000, '\0')};
  for (const std::string& bytes : spoilt) {
    fs::create_directories(record_.parent_path());
    spill(record_, bytes);
    EXPECT_EQ(check(), kAll);
    EXPECT_EQ(check(), 0u);
    fs::remove(record_);
  }
  fs::create_directory(record_);  // where the file should go
  EXPECT_EQ(check(), kAll);
  EXPECT_EQ(check(), kAll);
  fs::remove_all(record_.parent_path());
  spill(record_.parent_path(), "a file where the folder should be");
  EXPECT_EQ(check(), kAll);
  EXPECT_EQ(scratch_.names().size(), 2u) << "and nothing is left behind";
}

TEST_F(ShardCheckTest, FilesThatAreGoneAreForgotten) {
  EXPECT_EQ(check(), kAll);
  const Scratch other;
  fs::copy(folder_, other / "copy", fs::copy_options::recursive);
  EXPECT_NE(slurp(record_).find("shard_00000.bin"), std::string::npos);
  const fs::path before = folder_;
  fs::remove_all(folder_);
  for (const auto& item : fs::directory_iterator(other / "copy"))
    fs::last_write_time(item, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const RdrrReader reader = RdrrReader::open(other / "copy");
  ShardCheck check(reader, record_);
  check.finish();
  EXPECT_EQ(check.bytes_read(), kAll);
  EXPECT_EQ(slurp(record_).find(before.string() + "/"), std::string::npos) << slurp(record_);
}

TEST_F(ShardCheckTest, MayBeLeftInTheMiddle) {
  const RdrrReader reader = RdrrReader::open(folder_);
  const ShardCheck check(reader, record_);
}

}  // namespace
}  // namespace doppler
