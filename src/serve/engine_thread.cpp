#include "serve/engine_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/clock.h"
#include "base/error.h"
#include "engine/backend.h"
#include "engine/watchdog.h"
#include "serve/api.h"

namespace doppler::serve {
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
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return loaders_ == 0; });
}

bool EngineThread::take_place(const std::string& client) {
  const auto mine = places_.find(client);
  if (taken_ >= options_.queue + (mine == places_.end() ? reserve(options_.queue) : 0)) return false;
  ++taken_;
  ++places_[client];
  return true;
}

void EngineThread::leave_place(const std::string& client) {
  --taken_;
  const auto mine = places_.find(client);
  if (--mine->second == 0) places_.erase(mine);
}

OnEnginePiece EngineThread::take_sink(uint64_t number) {
  const auto found = sinks_.find(number);
  Sink sink = std::move(found->second);
  sinks_.erase(found);
  const std::lock_guard lock(mutex_);
  leave_place(sink.client);
  return std::move(sink.on_piece);
}

void EngineThread::tell(const std::string& what, const std::string& model, const std::string& detail) const {
  if (options_.on_event) options_.on_event({what, model, detail});
}

const ModelSpec* EngineThread::find(const std::string& name) const {
  const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const ModelSpec& s) { return s.name == name; });
  return found == specs_.end() ? nullptr : &*found;
}

NamedModel EngineThread::find_named(const std::string& name) const {
  if (const ModelSpec* spec = find(name)) return {spec};
  for (const ModelSpec& spec : specs_) {
    for (size_t i = 0; i < spec.adapters.size(); ++i) {
      if (name == spec.name + ":" + spec.adapters[i].name) return {&spec, static_cast<int>(i)};
    }
  }
  return {};
}

std::vector<std::string> EngineThread::names() const {
  std::vector<std::string> names;
  for (const ModelSpec& spec : specs_) {
    names.push_back(spec.name);
    for (const NamedAdapter& adapter : spec.adapters) names.push_back(spec.name + ":" + adapter.name);
  }
  return names;
}

void EngineThread::with_model(const std::string& name, OnModel on_model, const std::string& client) {
  std::shared_ptr<const ServedModel> served;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.at(name);
    served = slot.served;
    if (!served) {
      if (!take_place(client)) {
        throw ApiError{.status = 429,
                       .message = "too many requests are waiting",
                       .code = "queue_full",
                       .type = "rate_limit_error"};
      }
      slot.waiting.push_back({client, std::move(on_model)});
      if (slot.loading) return;
      // Nobody joins it, since that could be asked of it by itself; stop() waits until all have ended.
      try {
        std::thread([this, &spec = *find(name)] { load(spec); }).detach();
      } catch (const std::system_error& error) {
        slot.waiting.pop_back();
        leave_place(client);
        throw ApiError{.status = 503,
                       .message = fmt::format("no thread can be started to load the model: {}", error.code().message()),
                       .type = "server_error"};
      }
      slot.loading = true;
      ++loaders_;
      return;
    }
  }
  on_model(served, "");
}

void EngineThread::load(const ModelSpec& spec) {
  Running running;
  std::string failure;
  const double begun = steady_seconds();
  try {
    auto served = std::make_shared<ServedModel>(ServedModel{spec.name, LoadedModel::load(spec.path), 0});
    served->model.need_tokenizer();
    served->embedding = std::make_shared<EmbeddingHead>(served->model);
    ExecutorOptions executor = options_.executor;
    std::vector<AdapterSpec> adapters;
    for (const NamedAdapter& adapter : spec.adapters) adapters.push_back(adapter.spec);
    executor.adapters = load_adapters(served->model, adapters, /*standard=*/false);
    served->adapters = adapters.size();
    if (executor.context == 0) executor.context = default_context(served->model.config);
    const BackendChoice backend = choose_backend(options_.backend, executor.device);
    if (executor.cache_memory == 0) {
      executor.cache_memory =
          default_cache_memory(served->model, backend, executor.context, options_.sequences, available_memory());
    }
    running.executor = make_executor(served->model, backend.name, executor, options_.verify);
    if (running.executor->name() == "webgpu") self_test(*running.executor, served->model);
    trace_steps(*running.executor, served->model);
    running.watch = set_watchdog(options_.watchdog, *running.executor, served->model);
    const int queue = options_.queue + reserve(options_.queue);
    running.generator = std::make_unique<Generator>(
        *running.executor, served->model.config, &*served->model.tokenizer,
        Generator::Options{.scheduler = {.context = executor.context,
                                         .sequences = options_.sequences + reserve(options_.sequences),
                                         .sequences_per_client = options_.sequences,
                                         .queue = queue,
                                         .queue_per_client = queue}});
    served->context = running.generator->scheduler().context();
    running.served = served;
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (running.served) {
    const KvCache& cache = running.executor->cache();
    const int context = running.served->context;
    running.cache_tokens = cache.pages() * static_cast<size_t>(context) / cache.layout().pages(context, 1);
    tell("loaded", spec.name,
         fmt::format("{} in {:.1f} s; context {} tokens; cache {:.0f} MiB, {} tokens", running.executor->name(),
                     steady_seconds() - begun, context,
                     static_cast<double>(running.executor->context_bytes()) / (1 << 20), running.cache_tokens));
  } else {
    tell("failed", spec.name, failure);
  }
  std::vector<Waiting> waiting;
  const std::shared_ptr<const ServedModel> served = running.served;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.at(spec.name);
    slot.loading = false;
    waiting.swap(slot.waiting);
    for (const Waiting& one : waiting) leave_place(one.client);
    if (served) {
      slot.served = served;
      loaded_.push_back(std::move(running));
    }
  }
  changed_.notify_all();
  for (const Waiting& one : waiting) one.on_model(served, failure);
  waiting.clear();
  const std::lock_guard lock(mutex_);
  --loaders_;
  changed_.notify_all();  // under the lock: who waits for it destroys it
}

uint64_t EngineThread::submit(std::shared_ptr<const ServedModel> model, GenerateRequest request, OnEnginePiece on_piece,
                              EngineWork work) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || !take_place(request.client)) return 0;
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
        running.idle_since = steady_seconds();
        running_.push_back(std::make_unique<Running>(std::move(running)));
      }
      loaded_.clear();
    }
    for (auto& [number, job] : arrived) {
      sinks_[number] = {.on_piece = std::move(job.on_piece),
                        .client = job.request.client,
                        .model = job.model->name,
                        .prompt = job.request.prompt.size(),
                        .begun = steady_seconds()};
      const auto here = std::find_if(running_.begin(), running_.end(),
                                     [&job = job](const auto& running) { return running->served == job.model; });
      if (here != running_.end()) {
        start(**here, number, std::move(job));
      } else {
        take_sink(number)({.failure = "the model had to be unloaded while the request came in"});
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
      if (!running.jobs.empty()) running.idle_since = steady_seconds();
      const bool idle = options_.idle_unload_s > 0 && steady_seconds() - running.idle_since > options_.idle_unload_s;
      const bool gone = !running.failure.empty() ? unload(running, running.failure, true)
                                                 : idle && unload(running, "nobody asked", false);
      if (gone) {
        running_.erase(running_.begin() + static_cast<long>(i));
      } else {
        ++i;
      }
    }
    publish();
  }
  for (const auto& running : running_) fail_all(*running, "the server is stopping");
  running_.clear();
  std::deque<std::pair<uint64_t, Job>> late;
  {
    const std::lock_guard lock(mutex_);
    late.swap(inbox_);
    for (const auto& [number, job] : late) leave_place(job.request.client);
  }
  for (const auto& [number, job] : late) job.on_piece({.failure = "the server is stopping"});
}

// Returns whether it did. Not while somebody makes a request of the model: beside the slot and the thread nobody may
// hold it, and under the lock nobody new can.
bool EngineThread::unload(Running& running, const std::string& why, bool even_if_used) {
  const std::string name = running.served->name;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_.at(name);
    if (!even_if_used && running.served.use_count() > 2) return false;
    slot.served = nullptr;
  }
  put_back_ += running.generator->scheduler().times_put_back();
  running.generator.reset();
  running.executor.reset();
  tell(even_if_used ? "failed" : "unloaded", name, why);
  return true;
}

void EngineThread::start(Running& running, uint64_t number, Job job) {
  if (job.work) {
    running.jobs[number] = 0;
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
  const double begun = steady_seconds();
  const auto on_event = [this, &running, number, prompt, left, seen, begun](const GenerateEvent& event) mutable {
    if (event.failure) {
      running.jobs.erase(number);
      tell("faulty", running.served->name, event.failure->message());
      take_sink(number)({.failure = event.failure->message()});
      return false;
    }
    Seen& before = (*seen)[event.id.sample];
    const Generation& answer = *event.so_far;
    const double now = steady_seconds();
    Piece piece{.sample = event.id.sample, .text = std::string(event.piece)};
    const auto from = static_cast<long>(before.tokens);
    piece.tokens.assign(answer.token_ids.begin() + from, answer.token_ids.end());
    if (!answer.logprobs.empty()) piece.logprobs.assign(answer.logprobs.begin() + from, answer.logprobs.end());
    generated_ += piece.tokens.size();
    sinks_.at(number).tokens += piece.tokens.size();
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
      if (last) {
        running.jobs.erase(number);
        take_sink(number)(std::move(piece));
      } else {
        sinks_.at(number).on_piece(std::move(piece));
      }
      return true;
    }
    if (!piece.text.empty() || !piece.tokens.empty()) sinks_.at(number).on_piece(std::move(piece));
    return true;
  };
  std::string failure = "too many requests are waiting";
  try {
    running.jobs[number] = 0;
    job.request.options.watch = running.watch;
    const Scheduler::Submitted submitted = running.generator->submit(std::move(job.request), on_event);
    if (submitted.id != 0) {
      running.jobs[number] = submitted.id;
      return;
    }
  } catch (const std::exception& error) {
    failure = error.what();
  }
  running.jobs.erase(number);
  take_sink(number)({.failure = failure});
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
  take_sink(number)({.finished = true, .failure = failure});
}

void EngineThread::step(Running& running) {
  if (!running.work.empty()) do_work(running);
  try {
    running.generator->step();
  } catch (const std::exception& error) {
    running.failure = error.what();
    fail_all(running, running.failure);
  }
}

// The generator is not used again: the next request loads the model anew.
void EngineThread::fail_all(Running& running, const std::string& why) {
  for (const auto& [number, id] : running.jobs) take_sink(number)({.failure = why});
  running.jobs.clear();
  running.work.clear();
}

void EngineThread::publish() {
  EngineGauges gauges{.preemptions = put_back_, .generated = generated_, .gpu_buffer_bytes = gpu_buffer_bytes()};
  for (const auto& running : running_) {
    const Scheduler& scheduler = running->generator->scheduler();
    const KvCache& cache = running->executor->cache();
    gauges.running += scheduler.running();
    gauges.waiting += scheduler.waiting() + scheduler.put_back();
    gauges.pages += cache.pages();
    gauges.held_pages += cache.held_pages();
    gauges.page_tokens = static_cast<size_t>(cache.layout().page_tokens);
    gauges.cache_tokens += running->cache_tokens;
    gauges.preemptions += scheduler.times_put_back();
  }
  if (options_.list_requests) {
    for (const auto& [number, sink] : sinks_)
      gauges.requests.push_back(
          {number, sink.model, sink.client, sink.prompt, sink.tokens, steady_seconds() - sink.begun});
  }
  metrics_.publish(gauges);
}

}  // namespace doppler::serve
