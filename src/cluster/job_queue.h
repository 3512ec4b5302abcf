// Messages that survive whoever handles them: streams of NATS JetStream, through libdoppler_nats.so. A server that is
// away for a while is waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/nats_plugin.h"

namespace doppler {

class JobQueue {
 public:
  struct Options {
    std::string url, credentials;  // nats://127.0.0.1:4222; a file, or nothing
    // Whether nobody waits any longer: what the server has not done by then fails.
    std::function<bool()> stopping = {};
  };
  explicit JobQueue(Options options);
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  size_t largest() const { return nats_.largest(connection_); }  // bytes of a message

  void make_stream(const std::string& name, const std::string& subject, const std::string& about);
  // Nothing: there is no such stream.
  std::optional<NatsStream> look(const std::string& stream, const std::string& subject);
  void remove_stream(const std::string& name);
  void publish(const std::string& subject, const std::string& id, const std::string& text);
  // Stores the texts behind the message `last`, which must be the stream's last; whether all of them are.
  bool append(const std::string& subject, const std::vector<std::string>& texts, uint64_t last);

  class Message {
   public:
    Message(const NatsPlugin& nats, const NatsMessage& message) : nats_(&nats), message_(message) {}
    Message(Message&& other) noexcept : nats_(other.nats_), message_(std::exchange(other.message_, {})) {}
    Message& operator=(Message&& other) noexcept {
      std::swap(message_, other.message_);
      return *this;
    }
    ~Message() { nats_->release(message_.handle); }

    std::string text() const { return {message_.text, message_.size}; }
    uint64_t number() const { return message_.number; }
    uint64_t delivered() const { return message_.delivered; }
    // A signal that is lost does no harm: the message comes again.
    void done() const { nats_->done(message_.handle); }
    void working() const { nats_->working(message_.handle); }
    void hand_back() const { nats_->hand_back(message_.handle); }

   private:
    const NatsPlugin* nats_;
    NatsMessage message_;
  };

  // One at a time, in its own thread if need be.
  class Consumer {
   public:
    Consumer(JobQueue& queue, const std::string& stream, const std::string& name, const std::string& subject,
             double ack_wait_s);
    ~Consumer() { queue_.nats_.close_consumer(consumer_); }
    Consumer(const Consumer&) = delete;
    Consumer& operator=(const Consumer&) = delete;
    // What there is, after waiting for something; nothing also while the server is away.
    std::vector<Message> fetch(int most, int wait_ms);

   private:
    JobQueue& queue_;
    void* consumer_ = nullptr;
  };
  void remove_consumer(const std::string& stream, const std::string& name);
  // Whether every message of the consumer was acknowledged.
  bool all_done(const std::string& stream, const std::string& consumer);

 private:
  // Calls until it is done or missing; what then was the outcome.
  int patiently(const std::string& what, const std::function<int()>& call);

  const NatsPlugin& nats_;
  const Options options_;
  void* connection_ = nullptr;
};

}  // namespace doppler
