#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

// Runs `work` in a process of its own, and returns how that ended, as waitpid() says it.
template <class Work>
int in_a_child(Work&& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(Files, WhatAKilledWriterLeftIsRemovedByTheNext) {
  const Scratch folder;
  const auto killed_writers = [&] {
    in_a_child([&] {
      FolderWriter writer(folder / "d");
      write_file_whole(writer.path() / "f", "half");
      const TargetLock lock(folder / "x");
      FileWriter file(folder / "x");
      file.write(std::as_bytes(std::span("half", 4)));
      ::kill(::getpid(), SIGKILL);
    });
  };
  fs::create_directory(folder / ".d.mine.partial");  // of no writer
  killed_writers();
  EXPECT_EQ(folder.names().size(), 5u) << "a folder, a file, and the lock of each";
  { const FolderWriter other(folder / "e"); }
  EXPECT_EQ(folder.names().size(), 5u) << "what others left is not its business";
  {
    const FolderWriter living(folder / "d");
    const TargetLock lock(folder / "x");
    EXPECT_THAT(folder.names(),
                UnorderedElementsAre(".d.mine.partial", living.path().filename(), ".d.lock", ".x.lock"));
  }
  EXPECT_THAT(folder.names(), ElementsAre(".d.mine.partial"));
}

TEST(Files, ATargetHasOneWriter) {
  const Scratch folder;
  const auto refused = [&](const fs::path& path) {
    EXPECT_THAT(testing::sentence([&] { const FolderWriter second(path); }), HasSubstr("is being written already"));
    EXPECT_THAT(testing::sentence([&] { const TargetLock second(path); }), HasSubstr(path.string()));
  };
  {
    FolderWriter first(folder / "d");
    refused(folder / "d");
    EXPECT_EQ(in_a_child([&] { refused(folder / "d"), ::_exit(HasFailure()); }), 0) << "nor in another process";
    EXPECT_TRUE(fs::exists(first.path())) << "the refused ones leave it alone";
    const FolderWriter other(folder / "e");
    write_file_whole(first.path() / "f", "1");
    first.commit();
  }
  { const FolderWriter next(folder / "d"); }
  EXPECT_THAT(folder.names(), ElementsAre("d"));
}

// Writers in step with each other: whoever gets the lock must find the work of the one before whole.
TEST(Files, OfManyProcessesOneAtATimeHoldsATarget) {
  const Scratch folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int faults = 0;
      for (int held = 0; held < 50;) {
        try {
          const TargetLock lock(folder / "x");
          const int fd = ::open((folder / "inside").c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
          faults += fd < 0;  // somebody else is in here
          ::close(fd);
          ::unlink((folder / "inside").c_str());
          ++held;
        } catch (const Failure&) {
        }
      }
      ::_exit(faults != 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(folder.names(), ElementsAre());
}

TEST(Files, APlantedLinkIsNotFollowed) {
  const Scratch folder;
  write_file_whole(folder / "victim", "precious");
  fs::create_directory(folder / "treasure");
  write_file_whole(folder / "treasure/f", "precious");
  // The lock's name can be foreseen; a temporary name only by chance, and is then one to be swept.
  fs::create_symlink(folder / "victim", folder / ".x.0123456789abcdef.partial");
  fs::create_symlink(folder / "treasure", folder / ".x.fedcba9876543210.partial");
  { const TargetLock lock(folder / "x"); }
  EXPECT_THAT(folder.names(), UnorderedElementsAre("victim", "treasure"));
  fs::create_symlink(folder / "victim", folder / ".x.lock");
  EXPECT_THAT(testing::sentence([&] { const TargetLock lock(folder / "x"); }), HasSubstr(".x.lock"));
  fs::create_symlink(folder / "victim", folder / "y");
  write_file_whole(folder / "y", "new");
  EXPECT_FALSE(fs::is_symlink(folder / "y")) << "replaced, not written through";
  EXPECT_EQ(read_text_file(folder / "victim"), "precious");
  EXPECT_EQ(read_text_file(folder / "treasure/f"), "precious");
}

TEST(Files, AMappingKnowsItsFile) {
  const Scratch folder;
  write_file_whole(folder / "x", std::string(10'000, 'x'));
  const std::byte* at = nullptr;
  {
    MappedFile mapped(folder / "x");
    at = mapped.bytes().data();
    MappedFile moved(std::move(mapped));
    ASSERT_NE(mapped_file_at(at), nullptr);
    EXPECT_EQ(mapped_file_at(at), folder / "x");
    EXPECT_NE(mapped_file_at(at + 9'999), nullptr);
    EXPECT_EQ(mapped_file_at(at + 10'000), nullptr);
    EXPECT_EQ(mapped_file_at(&folder), nullptr);
  }
  EXPECT_EQ(mapped_file_at(at), nullptr);
}

TEST(Files, WritingFromAMappedFileThatWasCutOffNamesThatFile) {
  const Scratch folder;
  write_file_whole(folder / "source", std::string(100'000, 'x'));
  const MappedFile source(folder / "source");
  fs::resize_file(folder / "source", 10'000);
  FileWriter target(folder / "target");
  EXPECT_THAT(testing::sentence([&] { target.write(source.bytes()); }), HasSubstr((folder / "source").string()));
}

TEST(Files, AFileThatIsCutOffWhileItIsReadEnds) {
  const Scratch folder;
  write_file_whole(folder / "x", std::string(100'000, 'x'));
  FileReader reader(folder / "x");
  std::vector<std::byte> piece(1000);
  EXPECT_EQ(reader.read(piece), 1000u);
  fs::resize_file(folder / "x", 1500);
  EXPECT_EQ(reader.read(piece), 500u);
  EXPECT_EQ(reader.read(piece), 0u);
}

TEST(Files, APipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text(50'000, 'x');  // less than a pipe holds
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  EXPECT_NE(testing::sentence([&] { const MappedFile mapped(path); }).find("a regular file"), std::string::npos);
  EXPECT_NE(testing::sentence([&] { read_text_file(path); }).find("a regular file, got a pipe"), std::string::npos);
  EXPECT_EQ(read_input(path), text);
  ::close(ends[0]);
}

TEST(Files, WhatHasNoEndIsRefusedWithItsName) {
  const Scratch folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);  // nobody writes into it: opening must not wait
  for (const fs::path& path : {fs::path("/dev/zero"), folder / "pipe"}) {
    for (const auto& text : {testing::sentence([&] { read_text_file(path); }),
                             testing::sentence([&] { const MappedFile mapped(path); })}) {
      EXPECT_THAT(text, HasSubstr(path.string()));
      EXPECT_THAT(text, HasSubstr("expected a regular file"));
    }
  }
  EXPECT_THAT(testing::sentence([] { read_input("/dev/zero"); }), HasSubstr("the text is too long (/dev/zero)"));
}

TEST(Files, ATextThatIsTooLongIsRefusedBeforeItIsRead) {
  const Scratch folder;
  write_file_whole(folder / "long", "");
  fs::resize_file(folder / "long", 1ull << 40);  // a terabyte of nothing: reading it would not end
  EXPECT_THAT(testing::sentence([&] { read_text_file(folder / "long"); }), HasSubstr("got 1099511627776 bytes"));
  fs::resize_file(folder / "long", kLongestText + 1);
  EXPECT_THAT(testing::sentence([&] { read_input(folder / "long"); }), HasSubstr((folder / "long").string()));
}

TEST(Files, WhatIsThereIsToldByItsKind) {
  const Scratch folder;
  write_file_whole(folder / "file", "x");
  fs::create_symlink("file", folder / "link");
  fs::create_symlink("round", folder / "round");
  for (const char* name : {"file", "link"}) {
    EXPECT_TRUE(file_exists(folder / name) && is_file(folder / name) && !is_folder(folder / name)) << name;
  }
  EXPECT_TRUE(file_exists(folder.path()) && is_folder(folder.path()) && !is_file(folder.path()));
  // A prompt may stand where a path is looked for.
  for (const fs::path& path : {folder / "missing", folder / "file" / "below", folder / "round", fs::path(""),
                               fs::path(std::string(5000, 'a')), fs::path("What color is the sky?")}) {
    EXPECT_FALSE(file_exists(path) || is_file(path) || is_folder(path)) << path;
  }
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
