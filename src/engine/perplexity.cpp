#include "engine/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/not_finite.h"
#include "engine/sampler.h"
#include "format/decode.h"

namespace doppler {
namespace {

constexpr size_t kLogitRows = 64;  // inputs whose logits are held at once

// ln Σ exp(logit)
double log_total(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - highest);
  return std::log(total) + highest;
}

void check(const ScoreOptions& o, size_t tokens) {
  if (o.window < 1 || o.stride < 0 || o.stride > o.window) {
    fail({.code = ErrorCode::kUsage,
          .what = "windows must overlap or touch",
          .where = "perplexity",
          .expected = "0 < stride <= window",
          .got = fmt::format("window {}, stride {}", o.window, o.stride)});
  }
  if (tokens <= static_cast<size_t>(o.window)) {
    fail({.code = ErrorCode::kUsage,
          .what = "the text is too short for one window",
          .where = "perplexity",
          .expected = "more than " + std::to_string(o.window) + " tokens",
          .got = std::to_string(tokens)});
  }
}

// `text`: the tokens behind which the logits are.
void need_finite(std::span<const float> logits, Context& context, std::span<const int32_t> text) {
  if (all_finite(logits.data(), logits.size())) return;
  context.release();
  fail(explain_not_finite(context.executor(), text, text.size()));
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  return log_total(logits) - logits[static_cast<size_t>(token)];
}

std::vector<TokenScore> score_tokens(Executor& executor, std::span<const int32_t> tokens, size_t batch) {
  std::vector<TokenScore> scores;
  Context context(executor);
  for (size_t at = 0; at + 1 < tokens.size(); at += batch) {
    const std::span<const int32_t> piece = tokens.subspan(at, std::min(batch, tokens.size() - 1 - at));
    const std::span<const float> logits = context.forward(piece, Logits::kAll);
    const size_t vocab = logits.size() / piece.size();
    for (size_t i = 0; i < piece.size(); ++i) {
      const std::span<const float> row = logits.subspan(i * vocab, vocab);
      need_finite(row, context, tokens.first(at + i + 1));
      scores.push_back({argmax(row), negative_log_likelihood(row, tokens[at + i + 1])});
    }
  }
  return scores;
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_total = log_total(p_logits), q_total = log_total(q_logits);
  double sum = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double p = p_logits[i] - p_total, q = q_logits[i] - q_total;
    sum += std::exp(p) * (p - q);
  }
  return std::max(0.0, sum);
}

TextScore score_text(Executor& executor, Executor* against, std::span<const int32_t> tokens,
                     const ScoreOptions& options, const std::function<void(size_t, size_t)>& progress) {
  check(options, tokens.size());
  const auto inputs = static_cast<size_t>(options.window);
  const auto stride = static_cast<size_t>(options.stride > 0 ? options.stride : options.window);
  const size_t windows = (tokens.size() - 1 - inputs) / stride + 1, all = windows * inputs;
  TextScore score;
  double sum = 0, kl = 0, same = 0;
  size_t done = 0;
  for (size_t start = 0; start + inputs < tokens.size(); start += stride) {
    Context context(executor);
    std::optional<Context> other_context;
    if (against) other_context.emplace(*against);
    const size_t known = start == 0 ? 0 : inputs - stride;  // inputs whose predictions an earlier window counted
    for (size_t at = 0; at < inputs; at += kLogitRows) {
      const std::span<const int32_t> piece = tokens.subspan(start + at, std::min(kLogitRows, inputs - at));
      const std::span<const float> logits = context.forward(piece, Logits::kAll);
      const std::span<const float> others =
          against ? other_context->forward(piece, Logits::kAll) : std::span<const float>();
      const size_t vocab = logits.size() / piece.size();
      for (size_t i = at < known ? known - at : 0; i < piece.size(); ++i) {
        const std::span<const float> row = logits.subspan(i * vocab, vocab);
        need_finite(row, context, tokens.subspan(start, at + i + 1));
        sum += negative_log_likelihood(row, tokens[start + at + i + 1]);
        ++score.tokens;
        if (!against) continue;
        const std::span<const float> other = others.subspan(i * vocab, vocab);
        need_finite(other, *other_context, tokens.subspan(start, at + i + 1));
        kl += kl_divergence(other, row);
        same += argmax(other) == argmax(row) ? 1 : 0;
      }
      done += piece.size();
      if (progress) progress(done, all);
    }
  }
  const auto count = static_cast<double>(score.tokens);
  score.perplexity = std::exp(sum / count);
  score.kl = kl / count;
  score.top1_agreement = same / count;
  return score;
}

double perplexity(Executor& executor, std::span<const int32_t> tokens, int window) {
  return score_text(executor, nullptr, tokens, {.window = window}).perplexity;
}

}  // namespace doppler
