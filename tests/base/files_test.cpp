#include "base/files.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/scratch.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;
using testing::Scratch;

TEST(Files, WritesWholeAndReadsBack) {
  const Scratch folder;
  const std::string text = std::string("a\0b", 3) + "ü\n";
  write_file_whole(folder / "x.txt", text);
  EXPECT_EQ(read_text_file(folder / "x.txt"), text);
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST(Files, AnEmptyFileIsAnEmptyText) {
  const Scratch folder;
  write_file_whole(folder / "empty", "");
  EXPECT_EQ(read_text_file(folder / "empty"), "");
}

TEST(Files, AWriterThatIsNotCommittedLeavesNothing) {
  const Scratch folder;
  {
    FileWriter writer(folder / "x");
    writer.write(std::as_bytes(std::span("half", 4)));
    FolderWriter inner(folder / "d");
    write_file_whole(inner.path() / "f", "1");
  }
  EXPECT_EQ(folder.names().size(), 0u);
}

TEST(Files, AFolderAppearsOnlyWhenCommitted) {
  const Scratch folder;
  FolderWriter writer(folder / "d/");
  write_file_whole(writer.path() / "f", "1");
  EXPECT_FALSE(fs::exists(folder / "d"));
  writer.commit();
  EXPECT_EQ(read_text_file(folder / "d/f"), "1");
}

TEST(Files, WhatIsInTheWayIsNotOverwritten) {
  const Scratch folder;
  fs::create_directory(folder / "d");
  write_file_whole(folder / "d/keep", "1");
  FolderWriter writer(folder / "d");
  EXPECT_THROW(writer.commit(), Failure);
  EXPECT_EQ(read_text_file(folder / "d/keep"), "1");
}

TEST(Files, ErrorsNameThePath) {
  const Scratch folder;
  for (const fs::path& path : {folder / "missing", folder.path()}) {
    EXPECT_NE(testing::sentence([&] { read_text_file(path); }).find(path.string()), std::string::npos);
  }
}

TEST(Files, Sha256OfKnownText) {
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span("abc", 3))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace doppler
