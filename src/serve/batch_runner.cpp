#include "serve/batch_runner.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/error.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

using Route = void (*)(ContextPtr);
const std::map<std::string, Route>& routes() {
  static const std::map<std::string, Route> all = {{"/v1/chat/completions", openai_chat},
                                                   {"/v1/completions", openai_completions},
                                                   {"/v1/responses", openai_responses},
                                                   {"/v1/embeddings", openai_embeddings}};
  return all;
}

std::string text_digest(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

int64_t seed_of(const std::string& id) {
  return static_cast<int64_t>(std::stoull(text_digest(id).substr(0, 15), nullptr, 16));
}

void check_request(BatchRequests::Request& request) {
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

}  // namespace

// The thread that reads requests and writes answers, as their connection's strand does in the server.
class BatchRunner::Strand {
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

class BatchRunner::Reply : public HttpReply {
 public:
  explicit Reply(std::shared_ptr<Strand> strand) : strand_(std::move(strand)) {}
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

BatchAnswer fault_answer(const BatchRequests::Request& request) {
  const std::string id = request.id.empty() ? fmt::format("line {}", request.line) : request.id;
  Json error = {{"code", request.code}, {"message", request.message}};
  if (request.line > 0) error["line"] = request.line;
  return {.line = Json{{"id", "batch_req_" + text_digest(id).substr(0, 24)},
                       {"custom_id", request.id.empty() ? Json() : Json(request.id)},
                       {"response", nullptr},
                       {"error", std::move(error)}}
                      .dump(),
          .faulty = true};
}

BatchRunner::BatchRunner(const std::vector<ModelSpec>& models, const EngineOptions& options)
    : models_(models),
      most_(static_cast<size_t>(options.queue)),
      strand_(std::make_shared<Strand>()),
      engine_(models, options, metrics_) {}

BatchRunner::~BatchRunner() {
  strand_->close();
  engine_.stop();
  while (strand_->run(std::chrono::milliseconds(0))) {
  }
}

void BatchRunner::post(std::function<void()> work) { strand_->post(std::move(work)); }

void BatchRunner::load(const std::function<void()>& waiting) {
  struct Loaded {
    bool told = false, good = false;
    std::string failure = {};
  };
  const auto loaded = std::make_shared<Loaded>();
  engine_.with_model(models_.front().name, [loaded, strand = strand_](const auto& model, const auto& why) {
    strand->post([=, good = model != nullptr] { *loaded = {true, good, why}; });
  });
  while (!loaded->told) {
    strand_->run(std::chrono::milliseconds(100));
    waiting();
  }
  if (!loaded->good) fail({.code = ErrorCode::kUsage, .what = loaded->failure, .where = models_.front().path.string()});
}

void BatchRunner::run(std::chrono::milliseconds patience) {
  if (running_ == 0) alone_ = false;
  while (running_ == 0 && !again_.empty()) {
    const std::shared_ptr<Job> job = again_.front();
    again_.pop_front();
    if (job->before && !job->before()) continue;
    alone_ = true;
    start(job);
  }
  strand_->run(patience);
  if (running_ == 0) alone_ = false;
}

void BatchRunner::ask(BatchRequests::Request request, OnAnswer on_answer) {
  start(std::make_shared<Job>(Job{.request = std::move(request), .on_answer = std::move(on_answer), .before = {}}));
}

void BatchRunner::ask_alone(BatchRequests::Request request, OnAnswer on_answer, std::function<bool()> before) {
  again_.push_back(std::make_shared<Job>(
      Job{.request = std::move(request), .on_answer = std::move(on_answer), .before = std::move(before)}));
}

void BatchRunner::start(std::shared_ptr<Job> job) {
  BatchRequests::Request& request = job->request;
  if (request.code.empty()) check_request(request);
  if (!request.code.empty()) return job->on_answer(fault_answer(request));
  Json& body = request.json["body"];
  // The same answers in every run: a request that says no seed has one of its own.
  if (!doppler::find(body, "seed")) body["seed"] = seed_of(request.id);
  const auto reply = std::make_shared<Reply>(strand_);
  HttpRequest http;
  http.method = "POST";
  http.path = request.json["url"].text();
  http.body = body.dump();
  const ContextPtr context(new Context{std::move(http), reply, engine_, false});
  context->client.name = "batch";
  ++running_;
  context->on_end = [this, strand = strand_, job, reply](const Context& ended) {
    strand->post([this, job, reply, usage = ended.usage] { take(job, *reply, usage); });
  };
  try {
    routes().at(context->request.path)(context);
  } catch (...) {
    send_error(*context, current_error());
  }
}

void BatchRunner::take(const std::shared_ptr<Job>& job, const Reply& reply, const Usage& usage) {
  --running_;
  if (strand_->closed()) return;
  int status = reply.status();
  std::string body = reply.body();
  if (status == 0) {
    status = 500;
    body = openai_error({.status = 500, .message = "the answer was lost", .type = "server_error"}).dump();
  }
  const bool failed = status == 429 || status >= 500;
  if (failed && !std::exchange(job->again, true)) {
    job->before = nullptr;
    again_.push_back(job);
    return;
  }
  const std::string& id = job->request.id;
  job->on_answer({.line = fmt::format(R"({{"id":"batch_req_{}","custom_id":{},"response":{{"status_code":{},)"
                                      R"("request_id":"{}","body":{}}},"error":null}})",
                                      text_digest(id).substr(0, 24), Json(id).dump(), status, random_id("req_"), body),
                  .faulty = status >= 400,
                  .failed = failed,
                  .prompt_tokens = usage.prompt,
                  .tokens = usage.completion});
}

}  // namespace doppler::serve
