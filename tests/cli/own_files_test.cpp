// What the program runs or opens unasked is its own, whatever lies in the current folder.
#include "support/program.h"

namespace doppler {
namespace {

// The program under another roof: ROOT/bin/doppler.
std::string moved_program(const fs::path& root) {
  fs::create_directories(root / "bin");
  fs::copy_file(DOPPLER_BINARY_DIR "/doppler", root / "bin/doppler");
  return (root / "bin/doppler").string();
}

Outcome run_in(const fs::path& folder, const std::string& command) {
  const Scratch scratch;
  Outcome outcome;
  const std::string line = "cd \"" + folder.string() + "\" && " + command + " >" + (scratch / "out").string() + " 2>" +
                           (scratch / "err").string() + " </dev/null";
  const int status = std::system(line.c_str());
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.out = testing::slurp(scratch / "out");
  outcome.err = testing::slurp(scratch / "err");
  return outcome;
}

void put_script(const fs::path& root) {
  fs::create_directories(root / "tools/peers");
  spill(root / "tools/peers/peer.mjs", "");
}

// An npm that writes down where it was called, and with what.
std::string recording_npm(const Scratch& scratch) {
  const fs::path folder = scratch / "path";
  fs::create_directories(folder);
  spill(folder / "npm", "#!/bin/sh\npwd\nfor word; do echo \"$word\"; done\n");
  fs::permissions(folder / "npm", fs::perms::owner_all);
  return "PATH=" + folder.string() + ":$PATH ";
}

TEST(OwnFiles, PeersTakesNoScriptFromTheCurrentFolder) {
  const Scratch scratch, stranger;
  const std::string program = moved_program(scratch / "home");
  put_script(stranger.path());
  const std::string npm = recording_npm(scratch);
  const Outcome outcome = run_in(stranger.path(), npm + program + " bench peers --install");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("the script that drives llama.cpp is not here"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(scratch / "home/bin/peers"));
}

TEST(OwnFiles, PeersGivesAFoldersNameToNoShell) {
  const Scratch scratch;
  const fs::path home = scratch / "it's'; touch pwned; '";
  const std::string program = moved_program(home);
  put_script(home);
  const std::string npm = recording_npm(scratch);
  const Outcome outcome = run_in(scratch.path(), npm + "\"" + program + "\" bench peers --install");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const fs::path peers = home / "bin/peers";
  EXPECT_EQ(outcome.out, peers.string() + "\n");
  EXPECT_EQ(testing::slurp(peers / "npm.log"),
            peers.string() + "\ninstall\n--ignore-scripts\n--omit=optional\n--no-audit\n--no-fund\n");
  EXPECT_FALSE(fs::exists(scratch / "pwned"));
  EXPECT_FALSE(fs::exists(peers / "pwned"));
}

TEST(OwnFiles, TheModelThatShipsIsNotThatOfTheCurrentFolder) {
  const Scratch scratch, stranger;
  const std::string program = moved_program(scratch / "home");
  fs::create_directories(stranger / "models");
  fs::create_directory_symlink(DOPPLER_SOURCE_DIR "/models/tiny", stranger / "models/tiny");
  const Outcome outcome = run_in(stranger.path(), program + " inspect");
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find((scratch / "home/models/tiny").string()), std::string::npos) << outcome.err;
  EXPECT_EQ(run_in(stranger.path(), program + " inspect models/tiny").code, 0);
}

}  // namespace
}  // namespace doppler
