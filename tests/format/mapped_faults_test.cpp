// Shards that change while they are in use.
#include <gmock/gmock.h>

#include "format/rdrr.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr uint64_t kShard = 4 << 20;

// Two tensors of six megabytes each in shards of four: the second shard holds parts of both.
void write_artefact(const fs::path& folder) {
  RdrrWriter writer(folder, kShard);
  const std::vector<float> row(512 * 1024, 0.5f);
  for (const char* slot : {"embed", "lm_head"}) {
    writer.begin({slot, slot, DType::kF32, {3, 512 * 1024}, "matmul", {}, 0});
    for (int i = 0; i < 3; ++i) writer.write(std::as_bytes(std::span(row)));
    writer.end();
  }
  writer.commit(Json{{"version", 1}, {"modelId", "test"}});
}

TEST(MappedFaults, AShardThatIsCutOffWhileItIsVerifiedIsAFault) {
  const Scratch scratch;
  write_artefact(scratch / "m");
  const auto cut_off = [&](uint64_t, uint64_t) { fs::resize_file(scratch / "m" / "shard_00000.bin", 100); };
  EXPECT_THAT(RdrrReader::verify(scratch / "m", true, cut_off), Contains(HasSubstr("shard_00000.bin")));
}

TEST(MappedFaults, EveryByteOfATensorKnowsItsShard) {
  const Scratch scratch;
  write_artefact(scratch / "m");
  const std::byte* first = nullptr;
  {
    const RdrrReader reader = RdrrReader::open(scratch / "m");
    const auto bytes = reader.tensor(*reader.find_slot("embed")).bytes;
    first = bytes.data();
    EXPECT_EQ(mapped_file_at(first), scratch / "m" / "shard_00000.bin");
    EXPECT_EQ(mapped_file_at(first + kShard - 1), scratch / "m" / "shard_00000.bin");
    EXPECT_EQ(mapped_file_at(first + kShard), scratch / "m" / "shard_00001.bin");
    EXPECT_EQ(mapped_file_at(first + 3 * kShard - 1), scratch / "m" / "shard_00002.bin");
    EXPECT_EQ(mapped_file_at(first + 3 * kShard), nullptr);
    drop_mapped_pages(bytes);  // across two shards
    EXPECT_EQ(bytes[kShard], bytes[0]);
  }
  EXPECT_EQ(mapped_file_at(first), nullptr);
}

}  // namespace
}  // namespace doppler
