#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace doppler {

Scheduler::Scheduler(KvCache& cache, const SchedulerOptions& options) : cache_(cache), options_(options) {
  // The longest sequence that all pages can hold when it runs token by token.
  int low = 0, high = options.context;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (cache.can_hold(middle, 1)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  context_ = low;
  if (context_ < 1) {
    fail({.code = ErrorCode::kMemory,
          .what = "the cache of keys and values holds no sequence",
          .expected = fmt::format("{} pages or more", cache.layout().pages(1, 1)),
          .got = fmt::format("{}", cache.pages()),
          .todo = "Use a larger --cache-memory"});
  }
}

Scheduler::Submitted Scheduler::submit(ScheduleRequest spec) {
  if (spec.prompt.empty() || spec.prompt.size() > static_cast<size_t>(context_)) {
    fail({.code = ErrorCode::kUsage,
          .what = spec.prompt.empty() ? "the prompt is empty" : "the prompt is longer than the context",
          .expected = fmt::format("1 to {} tokens", context_),
          .got = fmt::format("{}", spec.prompt.size()),
          .todo = spec.prompt.empty() ? "" : "Use a larger --context or --cache-memory, or a shorter prompt"});
  }
  if (spec.samples < 1 || spec.samples > options_.sequences) {
    fail({.code = ErrorCode::kUsage,
          .what = "so many answers to one prompt cannot run at once",
          .expected = fmt::format("1 to {}", options_.sequences),
          .got = fmt::format("{}", spec.samples)});
  }
  if (waiting_.size() >= static_cast<size_t>(options_.queue)) return {.id = 0, .refusal = Refusal::kQueueFull};
  int& waiting = waiting_of_[spec.client];
  if (waiting >= options_.queue_per_client) return {.id = 0, .refusal = Refusal::kClientQueueFull};
  ++waiting;
  Request& request = requests_[++submitted_];
  request.id = submitted_;
  request.spec = std::move(spec);
  request.unfinished = request.spec.samples;
  request.samples.resize(static_cast<size_t>(request.spec.samples));
  for (Sample& sample : request.samples) {
    sample.request = &request;
    sample.index = static_cast<int>(&sample - request.samples.data());
    sample.tokens = request.spec.prompt;
  }
  waiting_.push_back(&request);
  return {.id = request.id};
}

void Scheduler::cancel(uint64_t id) {
  const auto found = requests_.find(id);
  if (found != requests_.end()) drop(found->second);
}

// Whatever state its samples are in.
void Scheduler::drop(Request& request) {
  if (request.order == 0) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &request));
    if (--waiting_of_[request.spec.client] == 0) waiting_of_.erase(request.spec.client);
  } else {
    for (const Sample& sample : request.samples) {
      remove(running_, sample);
      remove(put_back_, sample);
    }
    if ((unfinished_[request.spec.client] -= request.unfinished) == 0) unfinished_.erase(request.spec.client);
  }
  requests_.erase(request.id);
}

bool Scheduler::older(const Sample* a, const Sample* b) {
  return std::tie(a->request->order, a->index) < std::tie(b->request->order, b->index);
}

void Scheduler::insert(Samples& samples, Sample& sample) {
  samples.insert(std::lower_bound(samples.begin(), samples.end(), &sample, older), &sample);
}

void Scheduler::remove(Samples& samples, const Sample& sample) {
  samples.erase(std::remove(samples.begin(), samples.end(), &sample), samples.end());
}

Scheduler::Sample* Scheduler::find_if_there(SampleId id) {
  const auto request = requests_.find(id.request);
  return request == requests_.end() ? nullptr : &request->second.samples.at(static_cast<size_t>(id.sample));
}

Scheduler::Sample& Scheduler::find(SampleId id) {
  return requests_.at(id.request).samples.at(static_cast<size_t>(id.sample));
}

// Nothing is left to run but the token that was chosen last.
bool Scheduler::decoding(const Sample& sample) const {
  const size_t length = static_cast<size_t>(sample.sequence.length());
  return length >= sample.request->spec.prompt.size() && length + 1 == sample.tokens.size();
}

// Of those that are answered, how many a batch takes, so that every lane has some.
size_t Scheduler::share() const {
  const size_t lanes = static_cast<size_t>(options_.lanes);
  return lanes == 1 ? running_.size() : (running_.size() + lanes - 1) / lanes;
}

std::span<const Scheduler::Row> Scheduler::step(double now_ms) {
  ++steps_;
  rows_.clear();
  put_back_now_.clear();
  const auto is_decoding = [&](const Sample* sample) { return !sample->busy && decoding(*sample); };
  const auto is_busy = [](const Sample* sample) { return sample->busy; };
  const size_t most = share();
  const bool others = std::any_of(running_.begin(), running_.end(), is_busy);
  // Whom a piece of a prompt would hold up: who is in this batch, or what another batch had.
  const auto held_up = [&](size_t rows) {
    const size_t here = std::min(rows, most);
    return static_cast<int>(here > 0 || !others ? here : static_cast<size_t>(std::max(decoded_, 1)));
  };
  // The oldest first: who is put back for somebody older has no row yet.
  bool prefilling = false;
  for (size_t i = 0; i < running_.size(); ++i) {
    Sample& sample = *running_[i];
    if (sample.busy) {
      prefilling |= busy_with_prompt(sample);
      continue;
    }
    if (decoding(sample)) {
      if (rows_.size() < most) add_token(sample);
      continue;
    }
    prefilling = true;
    add_piece(sample, held_up(static_cast<size_t>(std::count_if(running_.begin(), running_.end(), is_decoding))));
  }
  // Nobody starts in a step that had to put somebody back, nor beside another's prompt.
  if (!prefilling && put_back_now_.empty()) {
    const int answered = held_up(rows_.size());
    if (Sample* started = admit()) add_piece(*started, answered);
  }
  // Those beside whom the piece was left out were put back.
  if (rows_.empty() && !running_.empty() && !others) add_piece(*running_.front(), 0);
  if (rows_.empty()) return {};
  for (const Row& row : rows_) find(row.id).busy = true;
  running_steps_.push_back({std::exchange(rows_, {}), now_ms});
  return running_steps_.back().rows;
}

// Did a batch that runs take a piece of its prompt?
bool Scheduler::busy_with_prompt(const Sample& sample) const {
  const SampleId id{sample.request->id, sample.index};
  for (const Step& step : running_steps_) {
    for (const Row& row : step.rows) {
      if (row.id == id) return row.prefill;
    }
  }
  return false;
}

void Scheduler::add_token(Sample& sample) {
  if (!make_room(sample, 1)) return;
  rows_.push_back({.id = {sample.request->id, sample.index},
                   .item = {.sequence = &sample.sequence,
                            .tokens = std::span(sample.tokens).last(1),
                            .phase = Phase::kDecode,
                            .want = Logits::kLast},
                   .prefill = false,
                   .choices = 1});
}

// The prompt in its own phase, and tokens that were chosen in that in which they ran first, so that what was put back
// becomes the same again. No piece has both.
void Scheduler::add_piece(Sample& sample, int answered) {
  const Request& request = *sample.request;
  const size_t at = static_cast<size_t>(sample.sequence.length()), prompt = request.spec.prompt.size();
  const size_t end = at < prompt ? prompt : sample.tokens.size();
  const Phase phase = at < prompt ? request.spec.phase : Phase::kDecode;
  const size_t most = static_cast<size_t>(answered > 0 ? piece_tokens(phase) : options_.piece);
  if (answered > 0) {
    // What a piece adds is known by what a step takes without one. Where that was never measured for about as many
    // sequences, one step goes without.
    if (end - at > most && (answered > decoded_ || 2 * answered < decoded_)) return;
    last_most_[static_cast<size_t>(phase)] = static_cast<int>(most);
  }
  int tokens = static_cast<int>(std::min(end - at, most));
  while (tokens > 1 && !cache_.reserve(sample.sequence, tokens)) tokens /= 2;
  if (tokens == 1 && !make_room(sample, 1)) return;
  const bool last = at + static_cast<size_t>(tokens) == sample.tokens.size();
  rows_.push_back({.id = {request.id, sample.index},
                   .item = {.sequence = &sample.sequence,
                            .tokens = std::span(sample.tokens).subspan(at, static_cast<size_t>(tokens)),
                            .phase = phase,
                            .want = last ? Logits::kLast : Logits::kNone},
                   .prefill = true,
                   .choices = !last              ? 0
                              : request.prompted ? 1
                                                 : request.spec.samples});
}

// While others are answered: as many as run in the time they may be held up, by what pieces took lately, but no more
// than twice those of the last time, since a measure can be wrong. Whole pages where it is more than one: kernels like
// them.
int Scheduler::piece_tokens(Phase phase) const {
  const double ms = token_ms_[static_cast<size_t>(phase)];
  const int page = cache_.layout().page_tokens, last = last_most_[static_cast<size_t>(phase)];
  if (ms < 0 || last == 0) return std::min(page, options_.piece);
  const double most = std::min(2 * last, options_.piece);
  const int tokens = ms * most > options_.piece_ms ? static_cast<int>(options_.piece_ms / ms) : static_cast<int>(most);
  return tokens > page ? tokens / page * page : std::max(1, tokens);
}

// Puts back the youngest, and at last this one, until there are pages.
bool Scheduler::make_room(Sample& sample, int tokens) {
  while (!cache_.reserve(sample.sequence, tokens)) {
    // What runs keeps its pages; where nobody else has any, the sample waits.
    const auto last = std::find_if(running_.rbegin(), running_.rend(), [](const Sample* s) { return !s->busy; });
    Sample& youngest = **last;
    if (&youngest == &sample && std::any_of(running_.begin(), running_.end(), [](const Sample* s) { return s->busy; }))
      return false;
    if (running_.size() == 1) {
      fail({.code = ErrorCode::kInternal,
            .what = "a sequence that is alone has no room",
            .expected = fmt::format("{} pages", cache_.pages_for(sample.sequence, tokens)),
            .got = fmt::format("{} free of {}", cache_.free_pages(), cache_.pages())});
    }
    put_back(youngest);
    if (&youngest == &sample) return false;
  }
  return true;
}

void Scheduler::put_back(Sample& sample) {
  ++times_put_back_;
  sample.sequence = Sequence();
  remove(running_, sample);
  insert(put_back_, sample);
  put_back_now_.push_back({sample.request->id, sample.index});
}

// A client with enough running lets the others pass. Of those, the client with the fewest comes first, and among equals
// who came first: so whoever has nothing running waits for one end at most, however many others wait before it.
Scheduler::Sample* Scheduler::next_waiting() {
  Request* next = nullptr;
  int fewest = 0;
  for (Request* request : waiting_) {
    const auto client = unfinished_.find(request->spec.client);
    const int theirs = client == unfinished_.end() ? 0 : client->second;
    if (theirs > 0 && theirs + request->spec.samples > options_.sequences_per_client) continue;
    if (!next || theirs < fewest) next = request, fewest = theirs;
    if (fewest == 0) break;
  }
  return next ? &next->samples[0] : nullptr;
}

// Blocks of a group that a sequence of `length` tokens takes on its way to `tokens`.
size_t Scheduler::blocks_to_come(const KvLayout::Group& group, int length, size_t tokens) const {
  if (group.state) return 2;
  const int page = cache_.layout().page_tokens, end = static_cast<int>(tokens);
  const int blocks = (end + page - 1) / page - length / page;
  const int seen = group.window > 0 ? (group.window + options_.piece + page - 1) / page + 1 : blocks;
  return static_cast<size_t>(std::min(blocks, seen));
}

// The next that starts or starts again, if there are pages for all its tokens and for every sequence to go on by a
// block. Nobody passes one that must wait for pages, or a long prompt would wait forever.
Scheduler::Sample* Scheduler::admit() {
  Sample* sample = put_back_.empty() ? next_waiting() : put_back_.front();
  if (!sample) return nullptr;
  Request& request = *sample->request;
  const size_t sequences = request.prompted ? 1 : static_cast<size_t>(request.spec.samples);
  if (running_.size() + sequences > static_cast<size_t>(options_.sequences)) return nullptr;
  sample->sequence = cache_.start(request.spec.salt, request.spec.adapters);
  const int decoded = static_cast<int>(sample->tokens.size() - request.spec.prompt.size());
  const int found = cache_.take_prefix(sample->sequence, sample->tokens, request.spec.phase, decoded);
  std::vector<size_t> needed;  // blocks, by group
  for (const KvLayout::Group& group : cache_.layout().groups) {
    needed.push_back(blocks_to_come(group, found, sample->tokens.size()) + running_.size() + sequences);
  }
  if (!running_.empty() && !cache_.has_room(needed)) {
    sample->sequence = Sequence();
    return nullptr;
  }
  if (request.order == 0) {
    request.order = ++started_;
    request.found = found;
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &request));
    if (--waiting_of_[request.spec.client] == 0) waiting_of_.erase(request.spec.client);
    unfinished_[request.spec.client] += request.spec.samples;
  } else {
    remove(put_back_, *sample);
  }
  insert(running_, *sample);
  return sample;
}

void Scheduler::ran(double now_ms) {
  ran_ = std::move(running_steps_.front());
  running_steps_.pop_front();
  measure(ran_.rows, now_ms - ran_.begun_ms);
  for (const Row& row : ran_.rows) {
    Sample* const ran = find_if_there(row.id);  // it may have been cancelled
    if (!ran) continue;
    ran->busy = false;
    if (row.choices == 0) continue;
    Sample& sample = *ran;
    Request& request = *sample.request;
    if (request.prompted) continue;
    request.prompted = true;
    for (Sample& other : request.samples) {
      if (&other == &sample) continue;
      other.sequence = cache_.fork(sample.sequence);
      insert(running_, other);
    }
  }
}

void Scheduler::measure(const std::vector<Row>& rows, double ms) {
  constexpr double kNew = 0.3;  // weight of what was measured last
  const auto piece = std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.prefill; });
  if (piece == rows.end()) {
    const int count = static_cast<int>(rows.size());
    decode_ms_ = count == decoded_ ? std::min(ms, decode_ms_ + kNew * (ms - decode_ms_)) : ms;
    decoded_ = count;
    return;
  }
  const double others = static_cast<double>(rows.size() - 1);
  if (others >= decoded_ && ms < decode_ms_) {
    decoded_ = 0;  // that held a pause of the machine, beside which pieces would seem to cost nothing: measure again
    return;
  }
  // What the others' tokens took, at least: fewer sequences than were measured take no less than their share.
  const double without = decoded_ > 0 ? decode_ms_ * std::min(1.0, others / decoded_) : 0;
  const double each = std::max(0.0, ms - without) / static_cast<double>(piece->item.tokens.size());
  double& lately = token_ms_[static_cast<size_t>(piece->item.phase)];
  lately = lately < 0 ? each : lately + kNew * (each - lately);
}

void Scheduler::choose(SampleId id, int32_t token) { find(id).tokens.push_back(token); }

void Scheduler::finish(SampleId id) {
  Sample& sample = find(id);
  Request& request = *sample.request;
  if (request.unfinished == 1) return drop(request);
  --request.unfinished;
  --unfinished_[request.spec.client];
  sample.sequence = Sequence();
  remove(running_, sample);
  remove(put_back_, sample);
}

std::string Scheduler::describe() const {
  static const Step kNone;
  const Step& step = running_steps_.empty() ? kNone : running_steps_.back();
  std::string line = fmt::format("step {} at {:.1f} ms:", steps_, step.begun_ms);
  const auto names = [&](std::string_view what, auto&& wanted, const auto& list, auto&& id_of) {
    bool any = false;
    for (const auto& each : list) {
      if (!wanted(each)) continue;
      const SampleId id = id_of(each);
      line += any ? "" : fmt::format(" {}", what);
      line += fmt::format(" {}.{}", id.request, id.sample);
      any = true;
    }
    if (any) line += ';';
  };
  names(
      "decode", [](const Row& row) { return !row.prefill; }, step.rows, [](const Row& row) { return row.id; });
  for (const Row& row : step.rows) {
    if (!row.prefill) continue;
    const Sample& sample = requests_.at(row.id.request).samples[static_cast<size_t>(row.id.sample)];
    const size_t begin = static_cast<size_t>(row.item.tokens.data() - sample.tokens.data());
    line += fmt::format(" prefill {}.{} {} to {} of {} ({} found);", row.id.request, row.id.sample, begin,
                        begin + row.item.tokens.size(), sample.tokens.size(), sample.request->found);
  }
  names(
      "put back", [](SampleId) { return true; }, put_back_now_, [](SampleId id) { return id; });
  return line + fmt::format(" {} running, {} put back, {} waiting, {} of {} pages held", running_.size(),
                            put_back_.size(), waiting_.size(), cache_.held_pages(), cache_.pages());
}

}  // namespace doppler
