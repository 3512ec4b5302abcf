#include "web_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/version.h"
#include "debug/bounds.h"
#include "gpu/run/gpu_executor.h"
#include "host.h"

namespace doppler::web {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int whole(const Json& request, std::string_view key, int otherwise, int least, int most) {
  const int64_t value = int_or(request, key, otherwise, "request");
  if (value < least || value > most) {
    fail({.code = ErrorCode::kUsage,
          .what = "an option is out of range",
          .where = std::string(key),
          .expected = fmt::format("{} to {}", least, most),
          .got = std::to_string(value)});
  }
  return static_cast<int>(value);
}

std::vector<int32_t> read_ids(const Json& request) {
  std::vector<int32_t> ids;
  for (const Json& id : require_array(request, "ids", "request")) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      fail({.code = ErrorCode::kUsage,
            .what = "a token id is not a whole number",
            .where = "request: ids",
            .got = brief(id)});
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Sampling read_sampling(const Json& request) {
  const std::string where = "request";
  Sampling s;
  s.temperature = static_cast<float>(number_or(request, "temperature", 0, where));
  s.top_k = whole(request, "topK", 0, 0, 1 << 20);
  s.top_p = static_cast<float>(number_or(request, "topP", 1, where));
  s.min_p = static_cast<float>(number_or(request, "minP", 0, where));
  s.repeat_penalty = static_cast<float>(number_or(request, "repeatPenalty", 1, where));
  s.seed = static_cast<uint64_t>(int_or(request, "seed", 0, where));
  check(s);
  return s;
}

Json to_json(const Sampling& s) {
  return {{"temperature", s.temperature},
          {"topK", s.top_k},
          {"topP", s.top_p},
          {"minP", s.min_p},
          {"repeatPenalty", s.repeat_penalty}};
}

Json to_json(const Timing& t) {
  return {{"prefillMs", t.prefill_ms},     {"firstTokenMs", t.first_token_ms},
          {"decodeMs", t.decode_ms},       {"prefilled", t.prefilled},
          {"decoded", t.decoded},          {"prefillTokS", t.prefill_tok_s()},
          {"decodeTokS", t.decode_tok_s()}};
}

void show_to_host(const Step& step, std::span<const float> data, int tokens, int position) {
  host_tap(step.name.data(), static_cast<uint32_t>(step.name.size()), data.data(), static_cast<uint32_t>(data.size()),
           static_cast<uint32_t>(tokens), static_cast<uint32_t>(position));
}

}  // namespace

Json WebEngine::answer(const Json& request) {
  const std::string verb = require_string(request, "verb", "request");
  untap();  // a request that was refused left its tap behind
  if (verb == "load") return load(request);
  if (verb == "encode") return encode(request);
  if (verb == "decode") return decode(request);
  if (verb == "generate") return generate(request);
  if (verb == "debug") return debug(request);
  if (verb == "bench") return bench(request);
  if (verb == "score") return score(request);
  fail({.code = ErrorCode::kUsage, .what = "an unknown verb", .where = "request", .got = verb});
}

Session& WebEngine::session() {
  if (!session_) fail({.code = ErrorCode::kUsage, .what = "no model is loaded", .todo = "Load one first"});
  return *session_;
}

Json WebEngine::load(const Json& request) {
  const auto start = Clock::now();
  session_.reset();
  model_.reset();
  pace_ = DecodePace(batch_ = 0);
  model_.emplace(LoadedModel::load_rdrr(require_string(request, "name", "request")));
  model_->need_text();
  const ModelConfig& config = model_->config;
  const int context = whole(request, "context", default_context(config), 1, 1 << 20);
  const int block = whole(request, "block", 0, 0, 4096);
  auto executor = make_gpu_executor(config, model_->plan, model_->weights, {.context = context, .block = block});
  executor->set_model({&config, &model_->plan, &model_->weights});
  const size_t kv_bytes = executor->context_bytes();
  session_ = std::make_unique<Session>(std::move(executor), model_->tokenizer ? &*model_->tokenizer : nullptr, context);
  return {{"id", config.id},
          {"quantization", model_->quantization},
          {"layers", config.layer_count()},
          {"vocab", config.vocab},
          {"context", context},
          {"maxContext", config.max_context},
          {"artefactBytes", model_->artefact_bytes},
          {"kvBytes", kv_bytes},
          {"hasTokenizer", model_->tokenizer.has_value()},
          {"hasChat", model_->chat_template && model_->chat_template->present()},
          {"recommended", to_json(model_->recommended)},
          {"loadMs", ms_since(start)}};
}

Json WebEngine::encode(const Json& request) {
  session();
  const Tokenizer& tokenizer = model_->need_tokenizer();
  if (const Json* text = find(request, "text"); text && text->is_string()) {
    return {{"ids", tokenizer.encode(text->get<std::string>(), bool_or(request, "special", true, "request"))}};
  }
  if (!model_->chat_template || !model_->chat_template->present()) {
    fail({.code = ErrorCode::kUsage,
          .what = "this model has no chat template, so it cannot chat",
          .where = model_->config.id,
          .todo = "Let it go on from a plain text instead"});
  }
  const Json* tools = find(request, "tools");
  const std::string text =
      model_->chat_template->render(require_array(request, "messages", "request"), tools ? *tools : Json(), true);
  return {{"ids", tokenizer.encode(text, false)}, {"text", text}};
}

Json WebEngine::decode(const Json& request) {
  session();
  return {
      {"text", model_->need_tokenizer().decode(read_ids(request), bool_or(request, "skipSpecial", true, "request"))}};
}

Json WebEngine::generate(const Json& request) {
  GenerateOptions options;
  options.max_tokens = whole(request, "maxTokens", 512, 1, 1 << 20);
  options.sampling = read_sampling(request);
  options.decode_batch = whole(request, "decodeBatch", 0, 0, 64);
  if (const Json* stop = find(request, "stop")) {
    for (const Json& text : *stop) options.stop_texts.push_back(text.is_string() ? text.get<std::string>() : "");
  }
  Session& talk = session();
  if (!bool_or(request, "ignoreEnd", false, "request")) options.end_ids = model_->config.eos_ids;
  uint32_t tokens = 0;
  const auto on_piece = [&](std::string_view piece) {
    return host_piece(piece.data(), static_cast<uint32_t>(piece.size()), tokens++) != 0;
  };
  if (bool_or(request, "debug", false, "request")) tap(tapped_steps(request));
  const Generation result = talk.generate(read_ids(request), options, on_piece);
  untap();
  return {{"ids", result.token_ids},
          {"text", result.text},
          {"stopReason", name_of(result.stop_reason)},
          {"timing", to_json(result.timing)}};
}

void WebEngine::tap(TapSteps steps) {
  session().executor().set_tap_at(show_to_host, std::move(steps));
  tapped_ = true;
}

void WebEngine::untap() {
  if (tapped_ && session_) session_->executor().set_tap({});
  tapped_ = false;
}

// The steps of the layers asked for and those outside of any layer; all of them where no layer is named.
TapSteps WebEngine::tapped_steps(const Json& request) {
  TapSteps steps;
  const Json* layers = find(request, "layers");
  if (!layers || !layers->is_array() || layers->empty()) return steps;
  for (const Json& layer : *layers) {
    if (!layer.is_number_integer() || layer.get<int64_t>() < 0 ||
        layer.get<int64_t>() >= model_->config.layer_count()) {
      fail({.code = ErrorCode::kUsage,
            .what = "no such layer",
            .where = "layers",
            .expected = fmt::format("0 to {}", model_->config.layer_count() - 1),
            .got = brief(layer)});
    }
  }
  for (const Step& step : model_->plan.steps) {
    const auto here = [&](const Json& layer) { return layer.get<int>() == step.layer; };
    if (step.layer < 0 || std::any_of(layers->begin(), layers->end(), here)) steps.insert(step.name);
  }
  return steps;
}

// A prompt with its steps tapped: the host gets what each computes. The answer is what the plan says of them.
Json WebEngine::debug(const Json& request) {
  Executor& executor = session().executor();
  const std::vector<int32_t> ids = read_ids(request);
  check_tokens(model_->config, ids, 0, static_cast<int>(ids.size()));
  const bool all = bool_or(request, "allLogits", false, "request");
  session_->invalidate();  // a GPU holds one sequence at a time
  Context context(executor);
  tap(tapped_steps(request));
  context.forward(ids, all ? Logits::kAll : Logits::kLast);
  Json steps = Json::array();
  for (const Step& step : model_->plan.steps) {
    Json inputs = Json::array();
    for (const int input : step.inputs) inputs.push_back(model_->plan.values[static_cast<size_t>(input)].name);
    const auto* route = std::get_if<Route>(&step.op);
    steps.push_back({{"name", step.name},
                     {"layer", step.layer},
                     {"inputs", inputs},
                     {"attention", std::holds_alternative<Attention>(step.op)},
                     {"chosen", route ? route->k : 0},
                     {"kernel", executor.kernel_of(step)}});
  }
  untap();
  const auto bounds = [&](bool same_weights) {
    const Bounds b = bounds_for(model_->weights, same_weights);
    return Json{{"relative", b.relative}, {"added", b.added}, {"element", b.element}};
  };
  return {{"version", kVersion}, {"steps", steps}, {"bounds", bounds(false)}, {"boundsOfSameWeights", bounds(true)}};
}

// A prompt and likeliest tokens after it, as in `doppler bench inference`, which gives the tokens and judges the
// answer.
Json WebEngine::bench(const Json& request) {
  const std::vector<int32_t> prompt = read_ids(request);
  const int tokens = whole(request, "tokens", 0, 0, 1 << 20);
  if (const int batch = whole(request, "decodeBatch", 0, 0, 64); batch != batch_) pace_ = DecodePace(batch_ = batch);
  Executor& executor = session().executor();
  TapSteps tapped;
  if (const Json* steps = find(request, "taps"); steps && steps->is_array()) {
    for (const Json& step : *steps) tapped.insert(step.is_string() ? step.get<std::string>() : "");
  }
  const auto ignore = [](const Step&, std::span<const float>, int, int) {};
  if (!tapped.empty()) executor.set_tap_at(ignore, tapped);
  const int32_t first = whole(request, "first", 0, 0, model_->config.vocab - 1);
  session_->invalidate();
  const GreedyRun run = run_greedy(executor, prompt, first, tokens, pace_);
  if (!tapped.empty()) executor.set_tap({});
  return {{"firstTokenMs", run.first_token_ms},
          {"tokenMs", run.token_ms},
          {"ids", run.ids},
          {"decodeSubmits", run.spent.submits},
          {"decodeDispatches", run.spent.dispatches},
          {"deviceBytes", run.spent.bytes}};
}

// What the model would say after each of the ids but the last, and −ln p of what is there.
Json WebEngine::score(const Json& request) {
  const std::vector<int32_t> ids = read_ids(request);
  Executor& executor = session().executor();
  check_tokens(model_->config, ids, 0, static_cast<int>(ids.size()));
  constexpr size_t kBatch = 32;  // tokens whose logits are held at once
  std::vector<int32_t> choices;
  std::vector<double> nll;
  session_->invalidate();
  for (const TokenScore& token : score_tokens(executor, ids, kBatch)) {
    choices.push_back(token.choice);
    nll.push_back(token.nll);
  }
  return {{"choices", choices}, {"nll", nll}};
}

}  // namespace doppler::web
