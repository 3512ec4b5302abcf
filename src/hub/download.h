// One file from an address into a file that is whole or not there.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hub/http.h"

namespace doppler {

struct DownloadOptions {
  int connections = 4;             // at once, each with a piece of the file
  uint64_t piece_bytes = 8 << 20;  // of a range; what arrives early waits in memory, two pieces per connection at most
  int attempts = 6;                // without a byte of progress between them
  double first_pause = 0.5;        // seconds before the second attempt; doubles each time
  double longest_pause = 60;       // a server that asks for more is taken at its word: the download fails
  std::function<void(uint64_t arrived)> progress = {};  // bytes that came over the net since the last call
  std::function<bool()> cancelled = {};
};

struct DownloadSource {
  std::string url, token;
  uint64_t size = 0;
  // Forty digits: the SHA-1 that git gives a blob. Sixty-four: SHA-256. Empty: nothing but the length is known.
  std::string hash = {};
  std::string etag = {};  // where there is no hash: pieces must be of the same version
  std::string name = {};  // for messages
};

// Fetches into `target`.incomplete, which at every moment is the beginning of the file, checks it, and gives it its
// name. What an earlier try left is gone on with, also one of Hugging Face's programs. The caller holds the lock.
void download(HttpClient& client, const DownloadSource& source, const std::filesystem::path& target,
              const DownloadOptions& options);

// How long a server asks to wait (Retry-After in seconds or as a date), or -1.
double retry_after(const HttpAnswer& answer);

// Answers that are worth another try: no answer, 408, 429, 5xx.
bool is_passing_fault(const HttpAnswer& answer);

}  // namespace doppler
