#include "serve/batch_queue.h"

#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "serve/api.h"
#include "serve/batch_runner.h"

namespace doppler::serve {
namespace {

using namespace std::chrono_literals;

constexpr size_t kAtOnce = 256;  // requests that are stored before one waits, and bytes of them
constexpr size_t kBytesAtOnce = 8 << 20;
constexpr uint64_t kOften = 3;        // handed out more often than that, a request runs alone
constexpr uint64_t kTriesAlone = 10;  // after which it is given up
constexpr int kFetchAtOnce = 64;
constexpr int kFetchMs = 500;
constexpr double kLookEvery = 0.5;  // seconds, whether all is done
constexpr const char *kWorkers = "work", *kNotAll = "the batch was interrupted";

struct Names {
  explicit Names(const std::string& name)
      : requests("doppler-" + name),
        answers(requests + "-out"),
        request(fmt::format("doppler.{}.request", name)),
        out(fmt::format("doppler.{}.out.", name)),
        answer(out + "answer"),
        dead(out + "dead") {
    if (name.empty() || name.size() > 64 ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
            std::string::npos) {
      fail({.code = ErrorCode::kUsage,
            .what = "this is no name for a batch",
            .where = "name",
            .expected = "1 to 64 letters, digits, _ and -",
            .got = name});
    }
  }
  std::string tried(uint64_t number) const { return fmt::format("{}tried.{}", out, number); }
  std::string requests, answers, request, out, answer, dead;
};

// What the stream's description says of the requests in it.
struct About {
  size_t count = 0;
  std::string digest;
  std::string text() const { return fmt::format("{} requests, SHA-256 {}", count, digest); }
};

std::vector<size_t> sound_requests(const BatchRequests& requests) {
  std::vector<size_t> list;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests.read(i).code.empty()) list.push_back(i);
  }
  return list;
}

About about_file(const std::filesystem::path& input, size_t count) {
  const MappedFile file(input);
  return {count, sha256_hex(file.bytes())};
}

void check_same(const NatsStream& stream, const About& about, const QueueOptions& queue,
                const std::filesystem::path& input) {
  if (stream.about == about.text()) return;
  fail({.code = ErrorCode::kUsage,
        .what = "the batch of this name is of another file",
        .where = queue.name,
        .expected = fmt::format("{}: {}", input.string(), about.text()),
        .got = stream.about,
        .todo = "Choose another name, or collect that batch first"});
}

[[noreturn]] void interrupted(const QueueOptions& queue, size_t done, size_t all) {
  fail({.code = ErrorCode::kFile,
        .what = kNotAll,
        .where = queue.name,
        .got = fmt::format("{} of {}", done, all),
        .todo = "The same command goes on where it stopped"});
}

class Worker {
 public:
  Worker(const QueueOptions& options, const BatchOptions& batch)
      : options_(options),
        batch_(batch),
        names_(options.name),
        queue_(options.server),
        runner_(batch.models, batch.engine),
        most_(static_cast<size_t>(batch.engine.queue)) {}
  ~Worker() {
    stop_ = true;
    if (fetcher_.joinable()) fetcher_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  BatchCounts run() {
    wait_for_batch();
    runner_.load([this] { look(); });
    consumer_.emplace(queue_, names_.requests, kWorkers, names_.request, options_.ack_wait_s);
    fetcher_ = std::thread([this] { fetch(); });
    while (!finished()) {
      while (!ready_.empty() && runner_.room()) {
        const uint64_t number = ready_.front();
        ready_.pop_front();
        runner_.ask(read(number), [this, number](BatchAnswer answer) { take(number, std::move(answer)); });
      }
      wanted_ = static_cast<int>(most_ - std::min(most_, held_.size()));
      runner_.run(100ms);
      keep();
      look();
    }
    return counts_;
  }

 private:
  void look() {
    if (batch_.stopping && batch_.stopping()) {
      for (const auto& [number, message] : held_) message.hand_back();
      interrupted(options_, counts_.answered, counts_.all);
    }
    if (batch_.on_progress) batch_.on_progress(counts_);
  }

  // Its requests may still be coming.
  void wait_for_batch() {
    for (;;) {
      const std::optional<NatsStream> requests = queue_.look(names_.requests, names_.request);
      if (requests && queue_.look(names_.answers, names_.answer)) {
        counts_.all = std::stoull(requests->about);
        return;
      }
      std::this_thread::sleep_for(500ms);
      look();
    }
  }

  bool finished() {
    if (!held_.empty() || steady_seconds() - looked_s_ < kLookEvery) return false;
    looked_s_ = steady_seconds();
    const std::optional<NatsStream> requests = queue_.look(names_.requests, names_.request);
    if (!requests) return true;  // who collected it has removed it
    return requests->last == counts_.all && queue_.all_done(names_.requests, kWorkers);
  }

  // In a thread of its own, since it waits.
  void fetch() {
    while (!stop_) {
      const int wanted = std::min(wanted_.load(), kFetchAtOnce);
      if (wanted <= 0) {
        std::this_thread::sleep_for(10ms);
        continue;
      }
      auto got = std::make_shared<std::vector<JobQueue::Message>>(consumer_->fetch(wanted, kFetchMs));
      if (got->empty()) continue;
      std::atomic<bool> taken = false;
      runner_.post([this, got, &taken] {
        for (JobQueue::Message& message : *got) receive(std::move(message));
        taken = true;
      });
      while (!taken && !stop_) std::this_thread::sleep_for(1ms);
    }
  }

  void receive(JobQueue::Message message) {
    const uint64_t number = message.number(), delivered = message.delivered();
    const auto [at, fresh] = held_.try_emplace(number, std::move(message));
    if (!fresh) {
      at->second = std::move(message);  // it was silent for too long, and has it all the same
    } else if (delivered <= kOften) {
      ready_.push_back(number);
    } else {
      runner_.ask_alone(
          read(number), [this, number](BatchAnswer answer) { take(number, std::move(answer)); },
          [this, number] { return try_alone(number); });
    }
    wanted_ = static_cast<int>(most_ - std::min(most_, held_.size()));
  }

  BatchRequests::Request read(uint64_t number) const {
    BatchRequests::Request request;
    const std::optional<Json> json = try_parse_json(held_.at(number).text());
    const Json* id = json && json->is_object() ? json->find("custom_id") : nullptr;
    if (id && id->is_string()) {
      request.id = id->text();
      request.json = *json;
    } else {
      request.code = "invalid_json_line";
      request.message = fmt::format("message {} of the queue is no request", number);
    }
    return request;
  }

  // Workers died with this request among others, or alone.
  bool try_alone(uint64_t number) {
    const std::string subject = names_.tried(number);
    queue_.publish(subject, random_id("try_"), "");
    const std::optional<NatsStream> tries = queue_.look(names_.answers, subject);
    if (!tries || tries->matching <= kTriesAlone) return true;
    BatchRequests::Request request = read(number);
    request.code = "given_up";
    request.message =
        fmt::format("{} times the worker that answered this request died, with nothing else running", kTriesAlone);
    BatchAnswer answer = fault_answer(request);
    answer.failed = true;
    take(number, std::move(answer));
    return false;
  }

  void take(uint64_t number, BatchAnswer answer) {
    const auto held = held_.find(number);
    if (held == held_.end()) return;
    const std::string id = std::to_string(number);
    if (answer.line.size() > queue_.largest()) {
      BatchRequests::Request request = read(number);
      request.code = "answer_too_long";
      request.message =
          fmt::format("the answer has {} bytes, and the queue takes {}", answer.line.size(), queue_.largest());
      answer = fault_answer(request);
    }
    if (answer.failed) queue_.publish(names_.dead, "dead " + id, held->second.text());
    queue_.publish(names_.answer, id, answer.line);
    held->second.done();
    held_.erase(held);
    ++counts_.answered;
    if (answer.faulty) ++counts_.faulty;
    counts_.prompt_tokens += answer.prompt_tokens;
    counts_.tokens += answer.tokens;
  }

  // The server hears of what is held three times before it would hand it to somebody else.
  void keep() {
    if (steady_seconds() - kept_s_ < options_.ack_wait_s / 3) return;
    kept_s_ = steady_seconds();
    for (const auto& [number, message] : held_) message.working();
  }

  const QueueOptions& options_;
  const BatchOptions& batch_;
  const Names names_;
  JobQueue queue_;
  BatchCounts counts_;
  std::map<uint64_t, JobQueue::Message> held_;  // handed to this worker and not acknowledged
  std::deque<uint64_t> ready_;                  // of those, that were not asked
  BatchRunner runner_;
  const size_t most_;  // that are held
  double looked_s_ = 0, kept_s_ = steady_seconds();
  std::optional<JobQueue::Consumer> consumer_;  // the fetching thread's
  std::atomic<int> wanted_{0};
  std::atomic<bool> stop_{false};
  std::thread fetcher_;
};

}  // namespace

BatchCounts submit_batch(const std::filesystem::path& input, const QueueOptions& options,
                         const std::function<void(const BatchCounts&)>& on_progress) {
  const Names names(options.name);
  const BatchRequests requests(input);
  const std::vector<size_t> sound = sound_requests(requests);
  const About about = about_file(input, sound.size());
  JobQueue queue(options.server);
  BatchCounts counts{.all = sound.size()};
  queue.make_stream(names.answers, names.out + ">", "");
  queue.make_stream(names.requests, names.request, about.text());
  for (bool first = true;; first = false) {
    const NatsStream stream = queue.look(names.requests, names.request).value();
    check_same(stream, about, options, input);
    if (first) counts.kept = stream.last;
    counts.answered = stream.last - counts.kept;
    on_progress(counts);
    if (stream.last >= sound.size()) return counts;
    std::vector<std::string> texts;
    for (size_t i = stream.last, bytes = 0; i < sound.size() && texts.size() < kAtOnce && bytes < kBytesAtOnce; ++i) {
      const BatchRequests::Request request = requests.read(sound[i]);
      texts.push_back(request.json.dump());
      bytes += texts.back().size();
      if (texts.back().size() <= queue.largest()) continue;
      fail({.code = ErrorCode::kUsage,
            .what = "the request is longer than a message of the NATS server may be",
            .where = fmt::format("{}:{}", input.string(), request.line),
            .expected = fmt::format("{} bytes at most", queue.largest()),
            .got = std::to_string(texts.back().size()),
            .todo = "Raise max_payload in the server's configuration"});
    }
    if (!queue.append(names.request, texts, stream.last) && options.server.stopping && options.server.stopping())
      interrupted(options, counts.kept + counts.answered, counts.all);
  }
}

BatchCounts work_on_batch(const QueueOptions& queue, const BatchOptions& options) {
  return Worker(queue, options).run();
}

BatchCounts collect_batch(const QueueOptions& options, const BatchOptions& batch, bool remove) {
  const Names names(options.name);
  const BatchRequests requests(batch.input);
  BatchAnswers answers(batch.output, requests, batch.ordered);
  BatchCounts counts{.all = requests.size(), .kept = answers.kept()};
  size_t sound = 0;
  const auto write = [&](size_t at, bool faulty, std::string line) {
    answers.add(at, std::move(line));
    ++counts.answered;
    counts.faulty += faulty;
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    const BatchRequests::Request request = requests.read(i);
    sound += request.code.empty();
    if (!request.code.empty() && !answers.answered(i)) write(i, true, fault_answer(request).line);
  }
  JobQueue queue(options.server);
  const std::optional<NatsStream> stream = queue.look(names.requests, names.request);
  if (stream) check_same(*stream, about_file(batch.input, sound), options, batch.input);
  if (!stream && counts.kept + counts.answered < counts.all) {
    fail({.code = ErrorCode::kUsage,
          .what = "there is no batch of this name",
          .where = options.name,
          .todo = fmt::format("doppler batch submit {} {}", batch.input.string(), options.name)});
  }
  // The output remembers what is there, so each run reads the answers from the first on.
  const std::string path = std::filesystem::absolute(batch.output).string();
  const std::string reader = "collect-" + sha256_hex(std::as_bytes(std::span(path.data(), path.size()))).substr(0, 16);
  if (counts.kept + counts.answered < counts.all) {
    queue.remove_consumer(names.answers, reader);
    JobQueue::Consumer consumer(queue, names.answers, reader, names.answer, options.ack_wait_s);
    while (counts.kept + counts.answered < counts.all) {
      for (const JobQueue::Message& message : consumer.fetch(static_cast<int>(kAtOnce), kFetchMs)) {
        std::string line = message.text();
        const std::optional<Json> json = try_parse_json(line);
        const Json* id = json && json->is_object() ? json->find("custom_id") : nullptr;
        const std::optional<size_t> at = id && id->is_string() ? requests.find(id->text()) : std::nullopt;
        if (at && !answers.answered(*at)) {
          const Json* response = doppler::find(*json, "response");
          const Json* status = response && response->is_object() ? response->find("status_code") : nullptr;
          write(*at, !status || status->get<int>() >= 400, std::move(line));
        }
        message.done();
      }
      if (batch.stopping && batch.stopping()) interrupted(options, counts.kept + counts.answered, counts.all);
      if (batch.on_progress) batch.on_progress(counts);
    }
  }
  answers.finish();
  if (stream) queue.remove_consumer(names.answers, reader);
  if (remove) {
    queue.remove_stream(names.requests);
    queue.remove_stream(names.answers);
  }
  return counts;
}

}  // namespace doppler::serve
