#include "debug/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "debug/statistics.h"
#include "debug/svg.h"

namespace doppler {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d1d22; background: #fbfbfd; max-width: 940px; margin: 32px auto; padding: 0 20px }
h1 { font-size: 24px; margin: 0 0 4px } h2 { font-size: 17px; margin: 34px 0 6px }
.quiet { color: #666 } .bad { color: #c0392b; font-weight: 600 } .good { color: #1e7d4f; font-weight: 600 }
svg.chart { background: #fff; border: 1px solid #e4e4ea; border-radius: 8px; max-width: 100%; height: auto }
.text { background: #fff; border: 1px solid #e4e4ea; border-radius: 8px; padding: 14px; line-height: 2.3; box-sizing: border-box; max-width: 862px; margin-bottom: 12px }
.text span { padding: 3px 1px; border-radius: 3px; white-space: pre-wrap }
table { border-collapse: collapse } td, th { padding: 3px 14px 3px 0; text-align: left } td.n { text-align: right; font-variant-numeric: tabular-nums }
)";

// Pale for small, blue for large; v in 0 … 1.
std::string heat(double v) {
  const double t = std::clamp(v, 0.0, 1.0);
  const auto mix = [&](int a, int b) { return static_cast<int>(a + (b - a) * t); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(255, 20), mix(255, 70), mix(255, 160));
}

std::string residual_growth(const PageContents& page) {
  Series rms{"rms of the residual stream", "#2b5fd9", {}}, largest{"largest absolute value", "#e08a1e", {}};
  std::vector<std::pair<double, std::string>> ticks;
  for (const Stage& stage : page.run->all) {
    const Step* step = page.plan->find(stage.name);
    const bool out = step && stage.name == fmt::format("layer{}.out", step->layer);
    if (stage.name != "embed" && !out) continue;
    const TensorStatistics s = statistics(stage.row(stage.rows() - 1));
    const double at = step->layer;  // −1: the embedding
    rms.points.emplace_back(at, s.rms);
    largest.points.emplace_back(at, s.max_abs);
    ticks.emplace_back(at, at < 0 ? "embed" : fmt::format("{}", step->layer));
  }
  while (ticks.size() > 30) {  // every second label
    std::vector<std::pair<double, std::string>> fewer;
    for (size_t i = 0; i < ticks.size(); i += 2) fewer.push_back(ticks[i]);
    ticks = fewer;
  }
  ChartOptions options{"after layer", "value at the last position"};
  options.log_y = true;
  options.x_ticks = ticks;
  return line_chart({rms, largest}, options);
}

std::string stage_errors(const PageContents& page) {
  const Comparison& c = *page.comparison;
  Series errors{"relative error", "#2b5fd9", {}};
  std::vector<std::pair<double, std::string>> ticks;
  std::string layer;
  for (size_t i = 0; i < c.stages.size(); ++i) {
    const StageComparison& stage = c.stages[i];
    errors.points.emplace_back(static_cast<double>(i), std::max(stage.rel_error, 1e-9));
    const std::string here = stage.name.substr(0, stage.name.find('.'));
    if (here != layer && here.compare(0, 5, "layer") == 0) ticks.emplace_back(static_cast<double>(i), here.substr(5));
    layer = here;
  }
  ChartOptions options{"stage, in the order of computation (ticks: layers)", "relative error"};
  options.log_y = true;
  options.x_ticks = ticks;
  options.line_at = c.bounds.relative;
  options.line_label = "bound of any stage";
  std::string text = line_chart({errors}, options);
  if (c.first_bad.empty()) {
    return text + fmt::format("<p class=\"good\">All {} stages are within bounds.</p>", c.stages.size());
  }
  return text + fmt::format("<p><span class=\"bad\">First out of bounds: {}</span><br>{}</p>",
                            escape_markup(c.first_bad), escape_markup(c.cause));
}

std::string attention_map(const PageContents& page) {
  const AttentionHead& a = page.attention;
  const int n = a.rows, cell = std::clamp(620 / std::max(1, n), 4, 26), left = 120, top = 24;
  std::string svg = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" font-family=\"system-ui, sans-serif\" "
      "font-size=\"11\" xmlns=\"http://www.w3.org/2000/svg\">\n",
      std::max(470, left + n * cell + 20), top + n * cell + 30);
  const bool labels = cell >= 11;
  for (int p = 0; p < n; ++p) {
    if (labels && static_cast<size_t>(p) < page.tokens.size()) {
      svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#333\">{}</text>\n", left - 6,
                         top + p * cell + cell / 2 + 4, escape_markup(page.tokens[static_cast<size_t>(p)]));
    }
    for (int j = 0; j <= p; ++j) {
      const float w = a.weights[static_cast<size_t>(p) * static_cast<size_t>(n) + static_cast<size_t>(j)];
      svg += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>{} sees {}: {:.3f}</title></rect>",
          left + j * cell, top + p * cell, cell - 1, cell - 1, heat(std::sqrt(w)), p, j, w);
    }
  }
  svg += fmt::format(
      "\n<text x=\"{}\" y=\"{}\" fill=\"#333\">key position →  (each row is a query; darker: more weight)</text>\n",
      left, top + n * cell + 20);
  return svg + "</svg>\n";
}

std::string probabilities(const PageContents& page) {
  std::string text = "<div class=\"text\" id=\"probabilities\">";
  if (!page.tokens.empty()) text += fmt::format("<span>{}</span>", escape_markup(page.tokens[0]));
  double nll = 0;
  for (const TokenProbability& t : page.probabilities) {
    nll -= std::log(std::max(t.probability, 1e-30));
    text += fmt::format("<span style=\"background:{}{}\" title=\"{:.3g} %\">{}</span>", heat(t.probability * 0.8),
                        t.probability > 0.6 ? ";color:#fff" : "", 100 * t.probability, escape_markup(t.text));
  }
  text += "</div>\n";
  if (page.probabilities.empty()) return text;
  Series series{"", "#2b5fd9", {}};
  for (size_t i = 0; i < page.probabilities.size(); ++i) {
    series.points.emplace_back(static_cast<double>(i + 1), page.probabilities[i].probability);
  }
  ChartOptions options{"position", "probability"};
  options.height = 220;
  text += line_chart({series}, options);
  return text + fmt::format("<p class=\"quiet\">Perplexity of this text: {:.4g}</p>\n",
                            std::exp(nll / static_cast<double>(page.probabilities.size())));
}

}  // namespace

std::string_view page_style() { return kStyle; }

std::string debug_page(const PageContents& page) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Doppler debug: {0}</title>\n<style>{1}</style></head><body>\n"
      "<h1>{0}</h1>\n<p class=\"quiet\">{2}; {3}</p>\n",
      escape_markup(page.model), kStyle, escape_markup(page.backend), escape_markup(page.about));
  if (page.comparison) {
    html += "<section id=\"errors\"><h2>Error of each stage against the reference</h2>\n" + stage_errors(page) +
            "</section>\n";
  }
  html += "<section id=\"residual\"><h2>Growth of the residual stream</h2>\n" + residual_growth(page) + "</section>\n";
  if (!page.attention.weights.empty()) {
    html += fmt::format("<section id=\"attention\"><h2>Attention of layer {}, head {}</h2>\n", page.attention.layer,
                        page.attention.head);
    html += attention_map(page) + "</section>\n";
  }
  html += "<section id=\"tokens\"><h2>Probability of each token, given those before it</h2>\n" + probabilities(page) +
          "</section>\n";
  if (!page.top.empty()) {
    html += "<section id=\"next\"><h2>Likeliest next tokens</h2>\n<table><tr><th>token</th><th>logit</th></tr>";
    for (const auto& [text, logit] : page.top) {
      html += fmt::format("<tr><td>“{}”</td><td class=\"n\">{:.3f}</td></tr>", escape_markup(text), logit);
    }
    html += "</table></section>\n";
  }
  return html + "</body></html>\n";
}

}  // namespace doppler
