#include "cluster/job_queue.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "cluster/plugin.h"

namespace doppler {
namespace {

using namespace std::chrono_literals;

constexpr double kAwayAtMost = 300;  // seconds that a server is waited for
constexpr auto kBetweenCalls = 200ms;
constexpr int kStoredWithinMs = 30'000;

const NatsPlugin& nats_plugin() {
  return *static_cast<const NatsPlugin*>(load_plugin({.file = kNatsPluginFile,
                                                      .variable = "DOPPLER_NATS",
                                                      .symbol = kNatsPluginSymbol,
                                                      .version = kNatsPluginVersion,
                                                      .needed = "this wants a queue of NATS JetStream",
                                                      .package = "libnats-dev"}));
}

}  // namespace

JobQueue::JobQueue(Options options) : nats_(nats_plugin()), options_(std::move(options)) {
  const char* file = options_.credentials.empty() ? nullptr : options_.credentials.c_str();
  if (nats_.connect(options_.url.c_str(), file, &connection_) == kNatsDone) return;
  fail({.code = ErrorCode::kFile,
        .what = "there is no connection to the NATS server",
        .where = options_.url,
        .got = nats_.why(),
        .todo = "Start one with JetStream, nats-server -js, or give its address with --server"});
}

JobQueue::~JobQueue() { nats_.close(connection_); }

int JobQueue::patiently(const std::string& what, const std::function<int()>& call) {
  const double begun = steady_seconds();
  for (;;) {
    const int outcome = call();
    if (outcome == kNatsDone || outcome == kNatsMissing) return outcome;
    const bool given_up = steady_seconds() - begun > kAwayAtMost || (options_.stopping && options_.stopping());
    if (outcome == kNatsRefused || given_up) {
      fail(
          {.code = ErrorCode::kFile,
           .what = fmt::format("the NATS server {}: {}", outcome == kNatsRefused ? "refuses" : "does not answer", what),
           .where = options_.url,
           .got = nats_.why()});
    }
    std::this_thread::sleep_for(kBetweenCalls);
  }
}

void JobQueue::make_stream(const std::string& name, const std::string& subject, const std::string& about) {
  patiently("to make the stream " + name,
            [&] { return nats_.make_stream(connection_, name.c_str(), subject.c_str(), about.c_str()); });
}

std::optional<NatsStream> JobQueue::look(const std::string& stream, const std::string& subject) {
  NatsStream found;
  const int outcome = patiently("to say how full the stream " + stream + " is",
                                [&] { return nats_.look(connection_, stream.c_str(), subject.c_str(), &found); });
  if (outcome == kNatsMissing) return std::nullopt;
  return found;
}

void JobQueue::remove_stream(const std::string& name) {
  patiently("to remove the stream " + name, [&] { return nats_.remove_stream(connection_, name.c_str()); });
}

void JobQueue::publish(const std::string& subject, const std::string& id, const std::string& text) {
  patiently("to store a message of " + subject,
            [&] { return nats_.publish(connection_, subject.c_str(), id.c_str(), text.data(), text.size()); });
}

bool JobQueue::append(const std::string& subject, const std::vector<std::string>& texts, uint64_t last) {
  for (const std::string& text : texts) {
    if (nats_.send(connection_, subject.c_str(), text.data(), text.size(), last++) != kNatsDone) break;
  }
  if (nats_.sent(connection_, kStoredWithinMs) == kNatsDone) return true;
  std::this_thread::sleep_for(kBetweenCalls);
  return false;
}

JobQueue::Consumer::Consumer(JobQueue& queue, const std::string& stream, const std::string& name,
                             const std::string& subject, double ack_wait_s)
    : queue_(queue) {
  queue.patiently("to hand out messages of " + stream, [&] {
    return queue.nats_.open_consumer(queue.connection_, stream.c_str(), name.c_str(), subject.c_str(),
                                     static_cast<int64_t>(1e3 * ack_wait_s), &consumer_);
  });
}

std::vector<JobQueue::Message> JobQueue::Consumer::fetch(int most, int wait_ms) {
  std::vector<NatsMessage> messages(static_cast<size_t>(most));
  int count = 0;
  if (queue_.nats_.fetch(consumer_, most, wait_ms, messages.data(), &count) != kNatsDone)
    std::this_thread::sleep_for(kBetweenCalls);
  std::vector<Message> list;
  for (int i = 0; i < count; ++i) list.emplace_back(queue_.nats_, messages[static_cast<size_t>(i)]);
  return list;
}

void JobQueue::remove_consumer(const std::string& stream, const std::string& name) {
  patiently("to remove the consumer " + name,
            [&] { return nats_.remove_consumer(connection_, stream.c_str(), name.c_str()); });
}

bool JobQueue::all_done(const std::string& stream, const std::string& consumer) {
  uint64_t waiting = 0, unacknowledged = 0;
  const int outcome = patiently("to say what is left", [&] {
    return nats_.backlog(connection_, stream.c_str(), consumer.c_str(), &waiting, &unacknowledged);
  });
  return outcome == kNatsDone && waiting == 0 && unacknowledged == 0;
}

}  // namespace doppler
