// A progress bar on the terminal: how far, how fast, how long still. Silent where stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace doppler {

class Progress {
 public:
  // `unit` is what is counted ("weights", "B"); rates and totals are printed with k, M, G.
  Progress(std::string label, std::string unit);
  ~Progress();  // wipes the bar, so that what is printed next starts on a clean line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws at most ten times per second, and nothing for work that ends within half a second.
  void update(uint64_t done, uint64_t all);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_, unit_;
  bool terminal_, drawn_ = false;
  Clock::time_point start_, last_;
};

// The line a bar shows: "label  [#####     ]  42 %  18.3 Mweights/s  0:12 left". `seconds` have gone by.
std::string progress_line(const std::string& label, const std::string& unit, uint64_t done, uint64_t all,
                          double seconds, int columns);

// 1234567 → "1.23 M"
std::string with_prefix(double value);

}  // namespace doppler
