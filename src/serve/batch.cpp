#include "serve/batch.h"

#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <set>

#include "base/error.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

// The thread that reads requests and writes answers, as their connection's strand does in the server.
class Strand {
 public:
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_one();
  }
  // What there is, after waiting for something; false: nothing came.
  bool run(std::chrono::milliseconds patience) {
    std::deque<std::function<void()>> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, patience, [&] { return !work_.empty(); });
      work.swap(work_);
    }
    for (auto& each : work) std::exchange(each, nullptr)();
    return !work.empty();
  }
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::atomic<bool> closed_{false};
};

class BatchReply : public HttpReply {
 public:
  explicit BatchReply(std::shared_ptr<Strand> strand) : strand_(std::move(strand)) {}
  void post(std::function<void()> work) override { strand_->post(std::move(work)); }
  bool gone() const override { return strand_->closed(); }
  void on_gone(std::function<void()>) override {}
  void add_header(std::string, std::string) override {}
  void send(int status, std::string_view, std::string body, Headers) override {
    status_ = status;
    body_ = std::move(body);
  }
  void begin(std::string_view, std::string) override {
    throw ApiError{.message = "'stream' is not supported: the answers go to a file", .param = "stream"};
  }
  void write(std::string) override {}
  void end() override {}
  bool begun() const override { return status_ != 0; }
  int status() const override { return status_; }
  const std::string& body() const { return body_; }

 private:
  const std::shared_ptr<Strand> strand_;
  int status_ = 0;
  std::string body_;
};

using Route = void (*)(ContextPtr);
const std::map<std::string, Route>& routes() {
  static const std::map<std::string, Route> all = {{"/v1/chat/completions", openai_chat},
                                                   {"/v1/completions", openai_completions},
                                                   {"/v1/responses", openai_responses},
                                                   {"/v1/embeddings", openai_embeddings}};
  return all;
}

class Batch {
 public:
  explicit Batch(const BatchOptions& options)
      : options_(options),
        requests_(options.input, options.shard, options.shards),
        answers_(options.output, requests_, options.ordered),
        engine_(options.models, options.engine, metrics_) {
    counts_.all = requests_.size();
    counts_.kept = answers_.kept();
  }
  ~Batch() {
    strand_->close();
    engine_.stop();
    while (strand_->run(std::chrono::milliseconds(0))) {
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  BatchCounts run() {
    if (counts_.kept < counts_.all) {
      load();
      answer_all();
    }
    answers_.finish();
    return counts_;
  }

 private:
  void wait() {
    if (options_.stopping && options_.stopping()) {
      fail({.code = ErrorCode::kFile,
            .what = "the batch was interrupted",
            .where = options_.output.string(),
            .got = fmt::format("{} of {} answers", counts_.kept + counts_.answered, counts_.all),
            .todo = "The same command goes on where it stopped"});
    }
    strand_->run(std::chrono::milliseconds(100));
    if (options_.on_progress) options_.on_progress(counts_);
  }

  // The first model: if that one cannot be loaded, nothing is answered with errors.
  void load() {
    struct Loaded {
      bool told = false, good = false;
      std::string failure = {};
    };
    const auto loaded = std::make_shared<Loaded>();
    engine_.with_model(options_.models.front().name, [loaded, strand = strand_](const auto& model, const auto& why) {
      strand->post([=, good = model != nullptr] { *loaded = {true, good, why}; });
    });
    while (!loaded->told) wait();
    if (!loaded->good)
      fail({.code = ErrorCode::kUsage, .what = loaded->failure, .where = options_.models.front().path.string()});
  }

  // The queue is kept full, so that who ends is followed at once. Who failed by no fault of its own is asked once more,
  // alone: what takes the engine down takes nobody with it the second time.
  void answer_all() {
    const auto most = static_cast<size_t>(options_.engine.queue);
    bool alone = false;
    for (size_t next = 0; next < requests_.size() || running_ > 0 || !again_.empty();) {
      alone = alone && running_ > 0;
      while (next < requests_.size() && running_ < most && !alone && again_.empty()) {
        if (!answers_.answered(next)) ask(next);
        ++next;
      }
      if (running_ == 0 && !again_.empty()) {
        alone = true;
        ask(again_.front());
        again_.pop_front();
      }
      wait();
    }
  }

  void ask(size_t at) {
    BatchRequests::Request request = requests_.read(at);
    if (request.code.empty()) check(request);
    if (!request.code.empty()) return write_fault(at, request);
    Json& body = request.json["body"];
    // The same answers in every run: a request that says no seed has one of its own.
    if (!doppler::find(body, "seed")) body["seed"] = seed_of(request.id);
    const auto reply = std::make_shared<BatchReply>(strand_);
    HttpRequest http;
    http.method = "POST";
    http.path = request.json["url"].text();
    http.body = body.dump();
    const ContextPtr context(new Context{std::move(http), reply, engine_, false});
    context->client.name = "batch";
    ++running_;
    context->on_end = [this, strand = strand_, at, reply](const Context& ended) {
      strand->post([this, at, reply, usage = ended.usage] { take(at, *reply, usage); });
    };
    try {
      routes().at(context->request.path)(context);
    } catch (...) {
      send_error(*context, current_error());
    }
  }

  static void check(BatchRequests::Request& request) {
    try {
      const Fields fields(request.json);
      if (fields.string("method", "POST") != "POST") fields.wrong("method", "POST", request.json["method"]);
      const std::string url = fields.need_string("url");
      if (!routes().contains(url)) {
        std::vector<std::string> known;
        for (const auto& [path, route] : routes()) known.push_back(path);
        fields.wrong("url", fmt::format("{}", fmt::join(known, ", ")), Json(url));
      }
      const Json& body = fields.need("body");
      if (!body.is_object()) fields.wrong("body", "an object", body);
    } catch (const ApiError& error) {
      request.code = "invalid_request";
      request.message = error.message;
    }
  }

  static int64_t seed_of(const std::string& id) {
    return static_cast<int64_t>(std::stoull(digest(id).substr(0, 15), nullptr, 16));
  }
  static std::string digest(const std::string& text) {
    return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
  }

  void take(size_t at, const BatchReply& reply, const Usage& usage) {
    --running_;
    if (strand_->closed()) return;
    int status = reply.status();
    std::string body = reply.body();
    if (status == 0) {
      status = 500;
      body = openai_error({.status = 500, .message = "the answer was lost", .type = "server_error"}).dump();
    }
    if ((status == 429 || status >= 500) && asked_again_.insert(at).second) {
      again_.push_back(at);
      return;
    }
    const std::string id = requests_.read(at).id;
    counts_.prompt_tokens += usage.prompt;
    counts_.tokens += usage.completion;
    write(at, status >= 400,
          fmt::format(
              R"({{"id":"batch_req_{}","custom_id":{},"response":{{"status_code":{},"request_id":"{}","body":{}}},)"
              R"("error":null}})",
              digest(id).substr(0, 24), Json(id).dump(), status, random_id("req_"), body));
  }
  void write_fault(size_t at, const BatchRequests::Request& request) {
    const std::string id = request.id.empty() ? fmt::format("line {}", request.line) : request.id;
    write(at, true,
          Json{{"id", "batch_req_" + digest(id).substr(0, 24)},
               {"custom_id", request.id.empty() ? Json() : Json(request.id)},
               {"response", nullptr},
               {"error", {{"code", request.code}, {"message", request.message}, {"line", request.line}}}}
              .dump());
  }
  void write(size_t at, bool faulty, std::string line) {
    answers_.add(at, std::move(line));
    ++counts_.answered;
    if (faulty) ++counts_.faulty;
  }

  const BatchOptions& options_;
  const BatchRequests requests_;
  BatchAnswers answers_;
  Metrics metrics_;
  BatchCounts counts_;
  const std::shared_ptr<Strand> strand_ = std::make_shared<Strand>();
  size_t running_ = 0;        // requests that are asked and not answered
  std::deque<size_t> again_;  // that are to be asked once more
  std::set<size_t> asked_again_;
  EngineThread engine_;
};

}  // namespace

BatchCounts run_batch(const BatchOptions& options) { return Batch(options).run(); }

}  // namespace doppler::serve
