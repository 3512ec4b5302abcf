#include "debug/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "format/safetensors.h"

namespace doppler {

const Stage* Stages::find(std::string_view name) const {
  for (const Stage& stage : all) {
    if (stage.name == name) return &stage;
  }
  return nullptr;
}

Tap Capture::tap() {
  return [this](const Step& step, std::span<const float> data, int tokens, int position) {
    const auto [at, fresh] = index_.try_emplace(step.name, stages_.all.size());
    if (fresh) stages_.all.push_back({step.name, static_cast<int>(data.size()) / std::max(1, tokens), position, {}});
    Stage& stage = stages_.all[at->second];
    stage.data.insert(stage.data.end(), data.begin(), data.end());
  };
}

TapSteps steps_of_layers(const Plan& plan, std::span<const int> layers) {
  if (layers.empty()) return {};
  int count = 0;
  for (const Step& step : plan.steps) count = std::max(count, step.layer + 1);
  for (const int layer : layers) {
    if (layer >= 0 && layer < count) continue;
    fail({.code = ErrorCode::kUsage,
          .what = "there is no such layer",
          .where = "--layers",
          .expected = fmt::format("0 to {}", count - 1),
          .got = std::to_string(layer)});
  }
  TapSteps steps;
  for (const Step& step : plan.steps) {
    if (step.layer < 0 || std::find(layers.begin(), layers.end(), step.layer) != layers.end()) steps.insert(step.name);
  }
  return steps;
}

Stages capture_run(Executor& executor, const Plan& plan, std::span<const int32_t> tokens, const TapSteps& steps,
                   const CaptureOptions& options) {
  const int generate = options.generate;
  size_t bytes = 0;
  for (const Step& step : plan.steps) {
    const auto width = static_cast<size_t>(plan.values[static_cast<size_t>(step.output)].width);
    if (taps(steps, step)) bytes += width * (tokens.size() + static_cast<size_t>(generate)) * sizeof(float);
  }
  if (bytes > options.max_bytes) {
    fail({.code = ErrorCode::kMemory,
          .what = "keeping every tapped step of this prompt takes too much memory",
          .where = "debug",
          .expected = fmt::format("at most {:.1f} GB", static_cast<double>(options.max_bytes) / 1e9),
          .got = fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9),
          .todo = "Tap fewer --layers, or use a shorter prompt"});
  }
  Capture capture{std::string(executor.name())};
  Context context(executor);
  const auto both = [keep = capture.tap(), &watch = options.watch](const Step& step, std::span<const float> data,
                                                                   int rows, int first) {
    if (watch) watch(step, data, rows, first);
    keep(step, data, rows, first);
  };
  executor.set_tap_at(both, steps);
  std::vector<int32_t> text(tokens.begin(), tokens.end());
  const size_t decoded = static_cast<size_t>(options.decoded);
  std::span<const float> logits = context.forward(tokens.first(tokens.size() - decoded), Logits::kAll);
  if (decoded > 0) {
    TapSteps unfused = steps;
    for (const Step& step : plan.steps) {
      if (taps(steps, step)) unfused.insert(step.name);
    }
    for (const Step& step : plan.steps) {
      if (std::holds_alternative<Glu>(step.op)) unfused.erase(step.name);
    }
    executor.set_tap_at(both, unfused);
    for (size_t i = tokens.size() - decoded; i < tokens.size(); ++i) {
      const BatchItem item{&context.sequence(), tokens.subspan(i, 1), Phase::kDecode, Logits::kAll};
      logits = executor.run(std::span(&item, 1));
    }
  }
  const auto vocab = static_cast<size_t>(plan.values[static_cast<size_t>(plan.steps.back().output)].width);
  const auto likeliest = [&] {
    const std::span<const float> last = logits.last(vocab);
    return static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin());
  };
  int32_t token = generate > 0 ? likeliest() : 0;
  for (int left = generate; left > 0;) {  // each turn runs `token`, which is part of the text then
    text.push_back(token);
    const std::vector<int32_t> chosen = context.decode(token, left, {}, 0);
    if (chosen.empty()) {
      logits = context.forward(std::span(&token, 1), Logits::kAll);
      token = likeliest();
      --left;
      continue;
    }
    text.insert(text.end(), chosen.begin(), chosen.end() - 1);
    token = chosen.back() < 0 ? ~chosen.back() : chosen.back();  // whoever debugs wants to see what comes of it
    left -= static_cast<int>(chosen.size());
  }
  executor.set_tap(nullptr);
  Stages stages = capture.take();
  stages.prompt_ids = std::move(text);
  // A backend may finish steps in an order of its own; people read them in the plan's.
  std::map<std::string, size_t> order;
  for (size_t s = 0; s < plan.steps.size(); ++s) order[plan.steps[s].name] = s;
  std::stable_sort(stages.all.begin(), stages.all.end(),
                   [&](const Stage& a, const Stage& b) { return order[a.name] < order[b.name]; });
  return stages;
}

void write_stages(const std::filesystem::path& path, const Stages& stages) {
  std::vector<RawTensor> tensors;
  Json order = Json::array(), positions = Json::object();
  for (const Stage& stage : stages.all) {
    tensors.push_back({stage.name,
                       "F32",
                       {static_cast<int64_t>(stage.rows()), static_cast<int64_t>(stage.width)},
                       std::as_bytes(std::span(stage.data)),
                       path});
    order.push_back(stage.name);
    if (stage.position != 0) positions[stage.name] = stage.position;
  }
  std::map<std::string, std::string> metadata{{"order", order.dump()},
                                              {"positions", positions.dump()},
                                              {"prompt_ids", Json(stages.prompt_ids).dump()},
                                              {"source", stages.source}};
  if (!stages.artefact.empty()) metadata["artefact"] = stages.artefact;
  if (!stages.bundle.is_null()) metadata["bundle"] = stages.bundle.dump();
  write_safetensors(path, tensors, metadata);
}

namespace {

constexpr int kLastPosition = 1 << 28;  // added to a count of rows it is an int still

// A list or object that the metadata holds as text; null if it is not there.
Json parsed(const Json& metadata, const char* key, const std::string& where) {
  const std::string text = string_or(metadata, key, "", where);
  return text.empty() ? Json() : parse_json(text, where + ": " + key);
}

// reference.json beside a reference file knows the prompt where the file itself does not.
Json prompt_beside(const std::filesystem::path& path) {
  const std::filesystem::path beside = path.parent_path() / (path.stem().string() + ".json");
  std::error_code ignored;
  if (!std::filesystem::exists(beside, ignored)) return {};
  const Json json = parse_json(read_text_file(beside), beside.string());
  const Json* ids = json.is_object() ? find(json, "prompt_ids") : nullptr;
  return ids ? *ids : Json();
}

}  // namespace

Stages read_stages(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const std::string where = path.string();
  Stages stages;
  stages.source = where;
  const Json positions = parsed(file.metadata(), "positions", where);
  stages.artefact = string_or(file.metadata(), "artefact", "", where);
  stages.bundle = parsed(file.metadata(), "bundle", where);
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.dtype != "F32" || tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] < 1) {
      fail({.code = ErrorCode::kFormat,
            .what = "a stage must be f32 [rows, width]",
            .where = where,
            .expected = "F32 of two dimensions",
            .got = fmt::format("{} {} of {} dimensions", name, tensor.dtype, tensor.shape.size())});
    }
    Stage stage{name, static_cast<int>(tensor.shape[1]), 0, std::vector<float>(tensor.bytes.size() / sizeof(float))};
    if (!tensor.bytes.empty()) std::memcpy(stage.data.data(), tensor.bytes.data(), tensor.bytes.size());
    if (positions.is_object()) {
      const int64_t position = int_or(positions, name, 0, where);
      if (position < 0 || position > kLastPosition) {
        fail({.code = ErrorCode::kFormat,
              .what = "a stage begins at a position that cannot be",
              .where = where + ": " + name,
              .expected = fmt::format("0 to {}", kLastPosition),
              .got = std::to_string(position)});
      }
      stage.position = static_cast<int>(position);
    }
    stages.all.push_back(std::move(stage));
  }
  Json ids = parsed(file.metadata(), "prompt_ids", where);
  if (!ids.is_array() || ids.empty()) ids = prompt_beside(path);
  if (ids.is_array()) {
    for (const Json& id : ids) {
      if (!id.is_number_integer())
        fail({.code = ErrorCode::kFormat, .what = "a prompt id is no whole number", .where = where});
      stages.prompt_ids.push_back(id.get<int32_t>());
    }
  }
  return stages;
}

}  // namespace doppler
