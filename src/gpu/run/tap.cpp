#include "gpu/run/tap.h"

#include <algorithm>
#include <bit>

#include "gpu/wgsl/tap.h"

namespace doppler::gpu {
namespace {

// As in ops/tap.wgsl.
constexpr uint32_t kThreads = 256, kWords = 9, kNorm = 1, kTurn = 2;
constexpr size_t kSources = 4;
constexpr uint32_t kCopied = 1024;               // f32 that a workgroup takes of what is only copied
constexpr uint64_t kMostRowBytes = 64ull << 20;  // of all tokens of a submit

uint32_t groups_of(uint32_t width, uint32_t group) { return div_up(width, group); }

}  // namespace

Variant choose_tap(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

DecodeTaps::DecodeTaps(GpuContext& context, const TapSteps* tapped) : c_(context) {
  if (!tapped) return;
  Sights sights = look_into(c_.plan, c_.groups, [&](const Step& step) { return taps(*tapped, step); });
  sights_ = std::move(sights.all);
  alone_ = std::move(sights.alone);
  if (sights_.empty()) return;
  for (const int s : alone_) {
    keep({Sight::Source::kValue, c_.step(s).output});
    for (const int input : c_.step(s).inputs) keep({Sight::Source::kValue, input});
  }
  uint64_t row = 0;
  for (const Sight& sight : sights_) {
    keep({sight.source, sight.of});
    if (sight.source == Sight::Source::kBeside) {  // computed from what its group's norm reads
      keep({Sight::Source::kValue, c_.step(c_.groups[static_cast<size_t>(sight.of)].norm).inputs[0]});
    }
    row += width(sight) * 4ull;
  }
  most_tokens_ = static_cast<int>(std::clamp<uint64_t>(kMostRowBytes / row, 1, kMostDecodeBatch));
  share_looks();
  write_table();
  const auto tokens = static_cast<uint64_t>(most_tokens_);
  for (Look& look : looks_) look.rows = c_.device.create_buffer("taps", tokens * look.stride * 4);
  readback_ = c_.device.create_buffer("tapped values", tokens * row, BufferUse::kReadback);
}

uint64_t DecodeTaps::source_floats(const Key& key) const {
  const auto& [source, of] = key;
  switch (source) {
    case Sight::Source::kValue: return static_cast<uint64_t>(c_.width(of));
    case Sight::Source::kQkv: return static_cast<uint64_t>(c_.config.q_width() + 2 * c_.config.kv_width());
    case Sight::Source::kSplits: return static_cast<uint64_t>(c_.config.q_width());
    case Sight::Source::kBeside: return c_.weights.group(static_cast<size_t>(of)).rows;
  }
  return 0;
}

void DecodeTaps::keep(const Key& key) {
  Buffer& buffer = sources_[key];
  if (!buffer) buffer = c_.device.create_buffer("looked at", source_floats(key) * 4);
}

const Buffer* DecodeTaps::find(Sight::Source source, int of) const {
  const auto found = sources_.find({source, of});
  return found == sources_.end() ? nullptr : &found->second;
}

int DecodeTaps::rope_of(const Sight& sight) const {
  return sight.rope < 0 ? -1 : static_cast<int>(std::get<Rope>(c_.step(sight.rope).op).rope);
}

// Every source goes to one dispatch, with all that is seen of it.
void DecodeTaps::share_looks() {
  std::vector<Key> order;
  std::map<Key, std::vector<size_t>> seen;
  for (size_t i = 0; i < sights_.size(); ++i) {
    std::vector<size_t>& list = seen[{sights_[i].source, sights_[i].of}];
    if (list.empty()) order.push_back({sights_[i].source, sights_[i].of});
    list.push_back(i);
  }
  places_.resize(sights_.size());
  for (const Key& key : order) {
    int rope = -1;
    for (const size_t i : seen[key]) rope = std::max(rope, rope_of(sights_[i]));
    const bool fits = !looks_.empty() && looks_.back().sources.size() < kSources &&
                      (rope < 0 || looks_.back().rope < 0 || looks_.back().rope == rope);
    if (!fits) looks_.emplace_back();
    Look& look = looks_.back();
    look.sources.push_back(key);
    look.rope = std::max(look.rope, rope);
    for (const size_t i : seen[key]) {
      places_[i] = {looks_.size() - 1, look.stride};
      look.stride += width(sights_[i]);
      look.sights.push_back(i);
    }
  }
}

void DecodeTaps::write_table() {
  std::vector<uint32_t> parts, weights;
  std::map<std::string, uint32_t> known;  // where a norm's weights begin among all
  const auto weights_begin = static_cast<uint32_t>(sights_.size()) * kWords;
  for (Look& look : looks_) {
    look.first_part = static_cast<uint32_t>(parts.size()) / kWords;
    for (const size_t i : look.sights) {
      const Sight& sight = sights_[i];
      const auto source = std::find(look.sources.begin(), look.sources.end(), Key{sight.source, sight.of});
      uint32_t group = kCopied, at = 0;
      float eps = 0, offset = 0;
      if (sight.norm >= 0) {
        const Step& step = c_.step(sight.norm);
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
      if (sight.rope >= 0) group = static_cast<uint32_t>(std::get<Rope>(c_.step(sight.rope).op).head_dim);
      look.most_groups = std::max(look.most_groups, groups_of(width(sight), group));
      const uint32_t how = (sight.norm >= 0 ? kNorm : 0) | (sight.rope >= 0 ? kTurn : 0);
      parts.insert(parts.end(), {static_cast<uint32_t>(source - look.sources.begin()),
                                 static_cast<uint32_t>(sight.from), places_[i].offset, width(sight), group, how, at,
                                 std::bit_cast<uint32_t>(eps), std::bit_cast<uint32_t>(offset)});
    }
  }
  parts.insert(parts.end(), weights.begin(), weights.end());
  table_ = c_.device.create_buffer("what to tap", parts.size() * 4);
  write<uint32_t>(c_.device, table_, parts);
}

void DecodeTaps::record(Recording& recording) const {
  const Variant variant = choose_tap(c_.device.capabilities());
  for (const Look& look : looks_) {
    const auto source = [&](size_t i) { return sources_.at(look.sources[std::min(i, look.sources.size() - 1)]); };
    recording.dispatch<wgsl::Tap>("tap", variant, {.first = look.first_part, .stride = look.stride},
                                  {.state = c_.state,
                                   .table = table_,
                                   .rope = c_.ropes[static_cast<size_t>(std::max(look.rope, 0))],
                                   .a = source(0),
                                   .b = source(1),
                                   .c = source(2),
                                   .d = source(3),
                                   .taps = look.rows},
                                  {look.most_groups, static_cast<uint32_t>(look.sights.size()), 1});
  }
}

void DecodeTaps::hand_over(int count, int position, const Tap& tap) const {
  if (sights_.empty()) return;
  Recording copies(c_.device, "taps");
  std::vector<size_t> first;  // f32 of the readback where the rows of each dispatch begin
  size_t end = 0;
  for (const Look& look : looks_) {
    first.push_back(end);
    const size_t size = static_cast<size_t>(count) * look.stride;
    copies.copy("taps", look.rows, 0, readback_, end * 4, size * 4);
    end += size;
  }
  c_.device.submit(copies);
  c_.device.begin_read(readback_);
  c_.device.end_read(readback_, end * 4, [&](std::span<const std::byte> bytes) {
    const std::span values(reinterpret_cast<const float*>(bytes.data()), end);
    for (int token = 0; token < count; ++token) {
      for (size_t i = 0; i < sights_.size(); ++i) {
        const auto& [look, offset] = places_[i];
        const size_t at = first[look] + static_cast<size_t>(token) * looks_[look].stride + offset;
        tap(c_.step(sights_[i].step), values.subspan(at, width(sights_[i])), 1, position + token);
      }
    }
  });
}

}  // namespace doppler::gpu
