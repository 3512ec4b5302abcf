// A table that a terminal shows again every second: what runs, how full the cache is, tokens per second.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "serve/metrics.h"

namespace doppler::serve {

// Lines, each with its end, at most `rows` of them and none wider than `columns`. The speed is that since `before`,
// `seconds` ago.
std::string watch_table(const EngineGauges& before, const EngineGauges& now, double seconds, int rows, int columns);

class Watch {
 public:
  // `file` is a terminal's descriptor; `gauges` is called from a thread of its own, every `every`.
  Watch(int file, std::function<EngineGauges()> gauges, std::chrono::milliseconds every = std::chrono::seconds(1));
  ~Watch();  // the last table stays

 private:
  void loop();

  const int file_;
  const std::function<EngineGauges()> gauges_;
  const std::chrono::milliseconds every_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace doppler::serve
