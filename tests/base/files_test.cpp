#include "base/files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

size_t entries_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(Files, WritesWholeAndReadsBack) {
  const TemporaryFolder folder;
  const std::string text = std::string("a\0b", 3) + "ü\n";
  write_file_whole(folder / "x.txt", text);
  EXPECT_EQ(read_text_file(folder / "x.txt"), text);
  EXPECT_EQ(entries_in(folder.path()), 1u);
}

TEST(Files, AnEmptyFileIsAnEmptyText) {
  const TemporaryFolder folder;
  write_file_whole(folder / "empty", "");
  EXPECT_EQ(read_text_file(folder / "empty"), "");
}

TEST(Files, AWriterThatIsNotCommittedLeavesNothing) {
  const TemporaryFolder folder;
  {
    FileWriter writer(folder / "x");
    writer.write(std::as_bytes(std::span("half", 4)));
    FolderWriter inner(folder / "d");
    write_file_whole(inner.path() / "f", "1");
  }
  EXPECT_EQ(entries_in(folder.path()), 0u);
}

TEST(Files, AFolderAppearsOnlyWhenCommitted) {
  const TemporaryFolder folder;
  FolderWriter writer(folder / "d/");
  write_file_whole(writer.path() / "f", "1");
  EXPECT_FALSE(fs::exists(folder / "d"));
  writer.commit();
  EXPECT_EQ(read_text_file(folder / "d/f"), "1");
}

TEST(Files, WhatIsInTheWayIsNotOverwritten) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "d");
  write_file_whole(folder / "d/keep", "1");
  FolderWriter writer(folder / "d");
  EXPECT_THROW(writer.commit(), Failure);
  EXPECT_EQ(read_text_file(folder / "d/keep"), "1");
}

TEST(Files, ErrorsNameThePath) {
  const TemporaryFolder folder;
  for (const fs::path& path : {folder / "missing", folder.path()}) {
    try {
      read_text_file(path);
      ADD_FAILURE() << path;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.error.code, ErrorCode::kFile);
      EXPECT_EQ(failure.error.where, path.string());
    }
  }
}

TEST(Files, Sha256OfKnownText) {
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span("abc", 3))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace doppler
