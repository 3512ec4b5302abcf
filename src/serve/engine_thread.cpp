#include "serve/engine_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/backend.h"

namespace doppler::serve {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

EngineThread::EngineThread(std::vector<ModelSpec> models, EngineOptions options, Metrics& metrics)
    : specs_(std::move(models)), options_(std::move(options)), metrics_(metrics) {
  for (const ModelSpec& spec : specs_) slots_[spec.name];
  thread_ = std::thread([this] { loop(); });
}

void EngineThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& [name, slot] : slots_) {
    if (slot.loader.joinable()) slot.loader.join();
  }
  if (thread_.joinable()) thread_.join();
}

const ModelSpec* EngineThread::find(const std::string& name) const {
  const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const ModelSpec& s) { return s.name == name; });
  return found == specs_.end() ? nullptr : &*found;
}

void EngineThread::with_model(const std::string& name, OnModel on_model) {
  std::shared_ptr<const ServedModel> served;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.at(name);
    served = slot.served;
    if (!served) {
      slot.waiting.push_back(std::move(on_model));
      if (slot.loading) return;
      slot.loading = true;
      if (slot.loader.joinable()) slot.loader.join();  // it has ended: nothing is loading
      slot.loader = std::thread([this, spec = *find(name)] { load(spec); });
      return;
    }
  }
  on_model(served, "");
}

void EngineThread::load(const ModelSpec& spec) {
  Running running;
  std::string failure;
  try {
    auto served = std::make_shared<ServedModel>(ServedModel{spec.name, LoadedModel::load(spec.path), 0});
    served->model.need_tokenizer();
    ExecutorOptions executor = options_.executor;
    if (executor.context == 0) executor.context = default_context(served->model.config);
    running.executor = make_executor(served->model, options_.backend, executor);
    if (running.executor->name() == "webgpu") self_test(*running.executor, served->model);
    running.generator =
        std::make_unique<Generator>(*running.executor, served->model.config, &*served->model.tokenizer,
                                    Generator::Options{.scheduler = {.context = executor.context,
                                                                     .sequences = options_.sequences,
                                                                     .sequences_per_client = options_.sequences,
                                                                     .queue = options_.queue + 1,
                                                                     .queue_per_client = options_.queue + 1}});
    served->context = running.generator->scheduler().context();
    running.served = served;
  } catch (const std::exception& error) {
    failure = error.what();
  }
  std::vector<OnModel> waiting;
  const std::shared_ptr<const ServedModel> served = running.served;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.at(spec.name);
    slot.loading = false;
    waiting.swap(slot.waiting);
    if (served) {
      slot.served = served;
      loaded_.push_back(std::move(running));
    }
  }
  changed_.notify_all();
  for (const OnModel& on_model : waiting) on_model(served, failure);
}

uint64_t EngineThread::submit(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                              OnEnginePiece on_piece, EngineWork work) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || unfinished_ >= options_.queue) return 0;
  ++unfinished_;
  inbox_.emplace_back(++numbers_, Job{std::move(model), std::move(request), std::move(on_piece), std::move(work)});
  changed_.notify_all();
  return numbers_;
}

void EngineThread::cancel(uint64_t number) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(number);
  changed_.notify_all();
}

void EngineThread::loop() {
  bool busy = false;
  while (true) {
    std::deque<std::pair<uint64_t, Job>> arrived;
    std::vector<uint64_t> cancelled;
    {
      std::unique_lock lock(mutex_);
      const auto something = [&] { return stopping_ || !inbox_.empty() || !cancelled_.empty() || !loaded_.empty(); };
      if (!busy) changed_.wait_for(lock, std::chrono::seconds(1), something);
      if (stopping_) break;
      arrived.swap(inbox_);
      cancelled.swap(cancelled_);
      for (Running& running : loaded_) {
        running.idle_since = seconds();
        running_.push_back(std::make_unique<Running>(std::move(running)));
      }
      loaded_.clear();
    }
    for (auto& [number, job] : arrived) {
      const auto here = std::find_if(running_.begin(), running_.end(),
                                     [&job = job](const auto& running) { return running->served == job.model; });
      if (here != running_.end()) {
        start(**here, number, std::move(job));
      } else {
        --unfinished_;
        job.on_piece({.failure = "the model was unloaded while the request came in"});
      }
    }
    for (const uint64_t number : cancelled) {
      for (const auto& running : running_) {
        const auto job = running->jobs.find(number);
        if (job != running->jobs.end()) running->generator->cancel(job->second);
      }
    }
    busy = false;
    for (size_t i = 0; i < running_.size();) {
      Running& running = *running_[i];
      step(running);
      busy |= !running.jobs.empty();
      if (!running.jobs.empty()) running.idle_since = seconds();
      const bool idle = options_.idle_unload_s > 0 && seconds() - running.idle_since > options_.idle_unload_s;
      if (running.generator && !idle) {
        ++i;
        continue;
      }
      {
        const std::lock_guard lock(mutex_);
        slots_.at(running.served->name).served = nullptr;
      }
      running.generator.reset();
      running.executor.reset();
      running_.erase(running_.begin() + static_cast<long>(i));
    }
    publish();
  }
  for (const auto& running : running_) fail_all(*running, "the server is stopping");
  running_.clear();
  std::deque<std::pair<uint64_t, Job>> late;
  {
    const std::lock_guard lock(mutex_);
    late.swap(inbox_);
  }
  for (const auto& [number, job] : late) job.on_piece({.failure = "the server is stopping"});
}

void EngineThread::start(Running& running, uint64_t number, Job job) {
  if (job.work) {
    running.jobs[number] = 0;
    sinks_[number] = job.on_piece;
    running.work.emplace_back(number, std::move(job.work));
    return;
  }
  struct Seen {
    size_t tokens = 0;
    double last_s = 0;
  };
  const size_t prompt = job.request.prompt.size();
  int left = job.request.samples;
  auto seen = std::make_shared<std::map<int, Seen>>();
  const double begun = seconds();
  sinks_[number] = job.on_piece;
  const auto on_event = [this, &running, number, prompt, left, seen, begun](const GenerateEvent& event) mutable {
    Seen& before = (*seen)[event.id.sample];
    const Generation& answer = *event.so_far;
    const double now = seconds();
    Piece piece{.sample = event.id.sample, .text = std::string(event.piece)};
    const auto from = static_cast<long>(before.tokens);
    piece.tokens.assign(answer.token_ids.begin() + from, answer.token_ids.end());
    if (!answer.logprobs.empty()) piece.logprobs.assign(answer.logprobs.begin() + from, answer.logprobs.end());
    if (!piece.tokens.empty()) {
      if (before.tokens > 0) metrics_.gap(now - before.last_s);
      before = {answer.token_ids.size(), now};
    }
    if (event.finished) {
      piece.finished = true;
      piece.reason = answer.stop_reason;
      piece.timing = answer.timing;
      piece.total_tokens = answer.token_ids.size();
      const bool last = --left == 0;
      metrics_.finished(prompt, answer, event.id.sample == 0, last, now - begun);
      const OnEnginePiece sink = sinks_.at(number);
      if (last) {
        running.jobs.erase(number);
        sinks_.erase(number);
        --unfinished_;
      }
      sink(std::move(piece));
      return true;
    }
    if (!piece.text.empty() || !piece.tokens.empty()) sinks_.at(number)(std::move(piece));
    return true;
  };
  try {
    running.jobs[number] = 0;
    const Scheduler::Submitted submitted = running.generator->submit(std::move(job.request), on_event);
    if (submitted.id != 0) {
      running.jobs[number] = submitted.id;
      return;
    }
    job.on_piece({.failure = "too many requests are waiting"});
  } catch (const std::exception& error) {
    job.on_piece({.failure = error.what()});
  }
  running.jobs.erase(number);
  sinks_.erase(number);
  --unfinished_;
}

void EngineThread::do_work(Running& running) {
  const uint64_t number = running.work.front().first;
  std::string failure;
  try {
    if (!running.work.front().second(*running.executor)) return;
  } catch (const std::exception& error) {
    failure = error.what();
  }
  running.work.pop_front();
  running.jobs.erase(number);
  const OnEnginePiece sink = sinks_.at(number);
  sinks_.erase(number);
  --unfinished_;
  sink({.finished = true, .failure = failure});
}

void EngineThread::step(Running& running) {
  if (!running.work.empty()) do_work(running);
  try {
    running.generator->step();
  } catch (const std::exception& error) {
    fail_all(running, error.what());
  }
}

// The generator is not used again: the next request loads the model anew.
void EngineThread::fail_all(Running& running, const std::string& why) {
  for (const auto& [number, id] : running.jobs) {
    --unfinished_;
    sinks_.at(number)({.failure = why});
    sinks_.erase(number);
  }
  running.jobs.clear();
  running.work.clear();
  running.generator.reset();
}

void EngineThread::publish() {
  EngineGauges gauges;
  for (const auto& running : running_) {
    const Scheduler& scheduler = running->generator->scheduler();
    const KvCache& cache = running->executor->cache();
    gauges.running += scheduler.running();
    gauges.waiting += scheduler.waiting() + scheduler.put_back();
    gauges.pages += cache.pages();
    gauges.held_pages += cache.held_pages();
    gauges.page_tokens = static_cast<size_t>(cache.layout().page_tokens);
    gauges.preemptions += scheduler.times_put_back();
  }
  metrics_.publish(gauges);
}

}  // namespace doppler::serve
