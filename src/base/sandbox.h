// A cage for the rest of this process's life, kept by the kernel (Linux: Landlock and seccomp): whoever takes the
// process over through a stranger's file or request reaches only what is listed here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace doppler {

struct Sandbox {
  // Files, and folders with all that is in them; a link is followed once, when the sandbox begins. What is not there is
  // passed over.
  std::vector<std::filesystem::path> readable = {};
  std::vector<std::filesystem::path> writable = {};  // folders, readable as well
  std::vector<std::filesystem::path> devices = {};   // read, written and asked by ioctl
  bool listens = false;                              // TCP at `port`; nothing else of the network
  uint16_t port = 0;                                 // 0: any one
};

// What every program needs that runs models: libraries, zone and loader data, what the kernel tells of the machine.
std::vector<std::filesystem::path> system_files();

// What a GPU's driver needs beside those.
std::vector<std::filesystem::path> gpu_files();
std::vector<std::filesystem::path> gpu_devices();

// Before the first thread starts: threads that run already would stay outside. From now on this process and its
// children open nothing else, start no program, connect to nothing, gain no privileges, and look into no other process.
// Fails where the kernel lacks Landlock or seccomp: half a cage would be taken for a whole one. The result says by what
// it is kept, and what this kernel's Landlock is too old to hold.
std::string enter_sandbox(const Sandbox& sandbox);

}  // namespace doppler
