#include "bench/plot.h"

#include <fmt/format.h>

#include "base/error.h"
#include "debug/svg.h"

namespace doppler {
namespace {

constexpr const char* kColours[] = {"#2b5fd9", "#e08a1e", "#1e7d4f", "#a03cc0", "#c0392b", "#557"};

std::vector<Series> series_of(const std::vector<Json>& results, const char* sweep, const char* x, const char* y) {
  std::vector<Series> list;
  for (const Json& result : results) {
    const Json& points = require_array(require_object(result, "sweeps", "result"), sweep, "result");
    if (points.empty()) continue;
    const Json& model = require_object(result, "model", "result");
    Series series{
        fmt::format("{} {}, {}{}", string_or(model, "id", "", "result"), string_or(model, "quantization", "", "result"),
                    string_or(result, "backend", "", "result"),
                    string_or(result, "surface", "native", "result") == "browser" ? " in a browser" : ""),
        kColours[list.size() % std::size(kColours)],
        {}};
    for (const Json& point : points) {
      series.points.emplace_back(require_number(point, x, "result"), require_number(point, y, "result"));
    }
    list.push_back(std::move(series));
  }
  return list;
}

// The chart's own element, moved down by `top`.
std::string placed(const std::string& chart, int top) {
  return fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", top, chart);
}

}  // namespace

std::string plot_sweeps(const std::vector<Json>& results) {
  const std::vector<Series> depth = series_of(results, "depth", "depth", "decode_tok_s");
  const std::vector<Series> prompt = series_of(results, "prompt", "tokens", "prefill_tok_s");
  if (depth.empty() && prompt.empty()) {
    fail({ErrorCode::kUsage, "nothing to plot", "--plot", "", "",
          "Measure with --depths 0,512,2048 or --prompts 64,512"});
  }
  const ChartOptions by_depth{"tokens in the context", "decode, tok/s"}, by_prompt{"prompt tokens", "prefill, tok/s"};
  std::string body;
  int height = 0;
  if (!depth.empty()) {
    body += placed(line_chart(depth, by_depth), height);
    height += by_depth.height + 10;
  }
  if (!prompt.empty()) {
    body += placed(line_chart(prompt, by_prompt), height);
    height += by_prompt.height + 10;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{2}</svg>\n",
      by_depth.width, height, body);
}

}  // namespace doppler
