#include "base/files.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "support/scratch.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;
using testing::Scratch;
using ::testing::UnorderedElementsAre;

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

TEST(Files, AFolderMayReplaceWhatIsInTheWay) {
  const Scratch folder;
  for (const char* text : {"old", "new"}) {
    FolderWriter writer(folder / "d");
    write_file_whole(writer.path() / text, text);
    writer.commit(/*replace=*/true);
  }
  EXPECT_EQ(read_text_file(folder / "d/new"), "new");
  EXPECT_FALSE(fs::exists(folder / "d/old"));
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST(Files, WhatAKilledWriterLeftIsRemovedByTheNextAndALivingOneIsLeftAlone) {
  const Scratch folder;
  const auto killed_writer = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      FolderWriter writer(folder / "d");
      write_file_whole(writer.path() / "f", "half");
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  };
  fs::create_directory(folder / ".d.mine.partial");  // of no writer
  killed_writer();
  EXPECT_EQ(folder.names().size(), 2u);
  const FolderWriter living(folder / "d");
  EXPECT_THAT(folder.names(), UnorderedElementsAre(".d.mine.partial", living.path().filename()));
  killed_writer();
  EXPECT_TRUE(fs::exists(living.path()));
  { const FolderWriter other(folder / "e"); }
  EXPECT_EQ(folder.names().size(), 3u) << "another folder's leftovers are not its business";
}

TEST(Files, APipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text(50'000, 'x');  // less than a pipe holds
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  EXPECT_NE(testing::sentence([&] { const MappedFile mapped(path); }).find("a regular file"), std::string::npos);
  EXPECT_EQ(read_text_file(path), text);
  ::close(ends[0]);
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
