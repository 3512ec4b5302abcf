#include "gpu/run/tap.h"

#include <algorithm>
#include <bit>

#include "gpu/wgsl/tap.h"

namespace doppler::gpu {
namespace {

// As in ops/tap.wgsl.
constexpr uint32_t kThreads = 256, kWords = 9, kNorm = 1, kRotate = 2;
constexpr size_t kSources = 4;
constexpr uint32_t kCopied = 1024;              // f32 that a workgroup takes of what is only copied
constexpr uint64_t kMaxRowBytes = 64ull << 20;  // of all tokens of a submit

uint32_t tap_groups(uint32_t width, uint32_t group) { return div_up(width, group); }

}  // namespace

Variant choose_tap(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

DecodeTaps::DecodeTaps(GpuContext& context, const TapSteps* tapped) : c_(context) {
  if (!tapped) return;
  TapPlan tap_plan = plan_taps(c_.plan, c_.groups, [&](const Step& step) { return taps(*tapped, step); });
  taps_ = std::move(tap_plan.sources);
  recomputed_ = std::move(tap_plan.recomputed);
  if (taps_.empty()) return;
  for (const int s : recomputed_) {
    keep({TapSource::Kind::kValue, c_.step(s).output});
    for (const int input : c_.step(s).inputs) keep({TapSource::Kind::kValue, input});
  }
  uint64_t row = 0;
  for (const TapSource& source : taps_) {
    keep({source.kind, source.of});
    if (source.kind == TapSource::Kind::kRecomputed) {  // computed from what its group's norm reads
      keep({TapSource::Kind::kValue, c_.step(c_.groups[static_cast<size_t>(source.of)].norm).inputs[0]});
    }
    row += width(source) * 4ull;
  }
  max_tokens_ = static_cast<int>(std::clamp<uint64_t>(kMaxRowBytes / row, 1, kMaxDecodeBatch));
  assign_dispatches();
  write_table();
  const auto tokens = static_cast<uint64_t>(max_tokens_);
  for (TapDispatch& dispatch : dispatches_)
    dispatch.rows = c_.device.create_buffer("taps", tokens * dispatch.stride * 4);
  readback_ = c_.device.create_buffer("tapped values", tokens * row, BufferUse::kReadback);
}

uint64_t DecodeTaps::source_floats(const Key& key) const {
  const auto& [kind, of] = key;
  switch (kind) {
    case TapSource::Kind::kValue: return static_cast<uint64_t>(c_.width(of));
    case TapSource::Kind::kQkv: return static_cast<uint64_t>(c_.config.q_width() + 2 * c_.config.kv_width());
    case TapSource::Kind::kSplits: return static_cast<uint64_t>(c_.config.q_width());
    case TapSource::Kind::kRecomputed: return c_.weights.group(static_cast<size_t>(of)).rows;
  }
  return 0;
}

void DecodeTaps::keep(const Key& key) {
  Buffer& buffer = buffers_[key];
  if (!buffer) buffer = c_.device.create_buffer("tapped", source_floats(key) * 4);
}

const Buffer* DecodeTaps::find(TapSource::Kind kind, int of) const {
  const auto found = buffers_.find({kind, of});
  return found == buffers_.end() ? nullptr : &found->second;
}

int DecodeTaps::rope_of(const TapSource& source) const {
  return source.rope < 0 ? -1 : static_cast<int>(std::get<Rope>(c_.step(source.rope).op).rope);
}

// Every source goes to one dispatch, with all taps of it.
void DecodeTaps::assign_dispatches() {
  std::vector<Key> order;
  std::map<Key, std::vector<size_t>> seen;
  for (size_t i = 0; i < taps_.size(); ++i) {
    std::vector<size_t>& list = seen[{taps_[i].kind, taps_[i].of}];
    if (list.empty()) order.push_back({taps_[i].kind, taps_[i].of});
    list.push_back(i);
  }
  places_.resize(taps_.size());
  for (const Key& key : order) {
    int rope = -1;
    for (const size_t i : seen[key]) rope = std::max(rope, rope_of(taps_[i]));
    const bool fits = !dispatches_.empty() && dispatches_.back().sources.size() < kSources &&
                      (rope < 0 || dispatches_.back().rope < 0 || dispatches_.back().rope == rope);
    if (!fits) dispatches_.emplace_back();
    TapDispatch& dispatch = dispatches_.back();
    dispatch.sources.push_back(key);
    dispatch.rope = std::max(dispatch.rope, rope);
    for (const size_t i : seen[key]) {
      places_[i] = {dispatches_.size() - 1, dispatch.stride};
      dispatch.stride += width(taps_[i]);
      dispatch.taps.push_back(i);
    }
  }
}

void DecodeTaps::write_table() {
  std::vector<uint32_t> parts, weights;
  std::map<std::string, uint32_t> known;  // where a norm's weights begin among all
  const auto weights_begin = static_cast<uint32_t>(taps_.size()) * kWords;
  for (TapDispatch& dispatch : dispatches_) {
    dispatch.first_part = static_cast<uint32_t>(parts.size()) / kWords;
    for (const size_t i : dispatch.taps) {
      const TapSource& source = taps_[i];
      const auto key = std::find(dispatch.sources.begin(), dispatch.sources.end(), Key{source.kind, source.of});
      uint32_t group = kCopied, at = 0;
      float eps = 0, offset = 0;
      if (source.norm >= 0) {
        const Step& step = c_.step(source.norm);
        const auto& norm = std::get<Norm>(step.op);
        group = static_cast<uint32_t>(norm.group);
        eps = norm.eps;
        offset = norm.offset;
        const std::string& slot = step.weights[0].slot;
        const auto [found, fresh] = known.try_emplace(slot, weights_begin + static_cast<uint32_t>(weights.size()));
        if (fresh) {
          const auto more = gpu::read<uint32_t>(c_.device, c_.weights.vector(slot), group);
          weights.insert(weights.end(), more.begin(), more.end());
        }
        at = found->second;
      }
      if (source.rope >= 0) group = static_cast<uint32_t>(std::get<Rope>(c_.step(source.rope).op).head_dim);
      dispatch.max_groups = std::max(dispatch.max_groups, tap_groups(width(source), group));
      const uint32_t how = (source.norm >= 0 ? kNorm : 0) | (source.rope >= 0 ? kRotate : 0);
      parts.insert(parts.end(), {static_cast<uint32_t>(key - dispatch.sources.begin()),
                                 static_cast<uint32_t>(source.from), places_[i].offset, width(source), group, how, at,
                                 std::bit_cast<uint32_t>(eps), std::bit_cast<uint32_t>(offset)});
    }
  }
  parts.insert(parts.end(), weights.begin(), weights.end());
  table_ = c_.device.create_buffer("what to tap", parts.size() * 4);
  write<uint32_t>(c_.device, table_, parts);
}

void DecodeTaps::record(Recording& recording) const {
  const Variant variant = choose_tap(c_.device.capabilities());
  for (const TapDispatch& dispatch : dispatches_) {
    const auto source = [&](size_t i) {
      return buffers_.at(dispatch.sources[std::min(i, dispatch.sources.size() - 1)]);
    };
    recording.dispatch<wgsl::Tap>("tap", variant, {.first = dispatch.first_part, .stride = dispatch.stride},
                                  {.state = c_.state,
                                   .table = table_,
                                   .rope = c_.ropes[static_cast<size_t>(std::max(dispatch.rope, 0))],
                                   .a = source(0),
                                   .b = source(1),
                                   .c = source(2),
                                   .d = source(3),
                                   .taps = dispatch.rows},
                                  {dispatch.max_groups, static_cast<uint32_t>(dispatch.taps.size()), 1});
  }
}

void DecodeTaps::hand_over(int count, int position, const Tap& tap) const {
  if (taps_.empty()) return;
  Recording copies(c_.device, "taps");
  std::vector<size_t> first;  // f32 of the readback where the rows of each dispatch begin
  size_t end = 0;
  for (const TapDispatch& dispatch : dispatches_) {
    first.push_back(end);
    const size_t size = static_cast<size_t>(count) * dispatch.stride;
    copies.copy("taps", dispatch.rows, 0, readback_, end * 4, size * 4);
    end += size;
  }
  c_.device.submit(copies);
  c_.device.begin_read(readback_);
  c_.device.end_read(readback_, end * 4, [&](std::span<const std::byte> bytes) {
    const std::span values(reinterpret_cast<const float*>(bytes.data()), end);
    for (int token = 0; token < count; ++token) {
      for (size_t i = 0; i < taps_.size(); ++i) {
        const auto& [dispatch, offset] = places_[i];
        const size_t at = first[dispatch] + static_cast<size_t>(token) * dispatches_[dispatch].stride + offset;
        tap(c_.step(taps_[i].step), values.subspan(at, width(taps_[i])), 1, position + token);
      }
    }
  });
}

}  // namespace doppler::gpu
