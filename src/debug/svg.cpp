#include "debug/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace doppler {
namespace {

constexpr double kLeft = 74, kRight = 18, kTop = 28, kBottom = 46;

struct Axis {
  double low = 0, high = 1, from = 0, to = 1;  // values, pixels
  bool log = false;
  double at(double v) const {
    const double a = log ? std::log10(low) : low, b = log ? std::log10(high) : high;
    const double x = log ? std::log10(std::max(v, low)) : v;
    return from + (b > a ? (x - a) / (b - a) : 0.5) * (to - from);
  }
};

// Round numbers between low and high: powers of ten, or 1, 2, 5 times one.
std::vector<double> ticks(const Axis& axis) {
  std::vector<double> list;
  if (axis.log) {
    const double decades = std::log10(axis.high) - std::log10(axis.low);
    const int step = std::max(1, static_cast<int>(std::ceil(decades / 8)));
    for (int e = static_cast<int>(std::ceil(std::log10(axis.low) - 1e-9)); std::pow(10, e) <= axis.high * 1.0001;
         e += step) {
      list.push_back(std::pow(10, e));
    }
    if (list.size() >= 2) return list;
    return {axis.low, axis.high};
  }
  const double raw = (axis.high - axis.low) / 5;
  const double base = std::pow(10, std::floor(std::log10(raw > 0 ? raw : 1)));
  const double step = raw / base < 1.5 ? base : raw / base < 3.5 ? 2 * base : raw / base < 7.5 ? 5 * base : 10 * base;
  for (double v = std::ceil(axis.low / step - 1e-9) * step; v <= axis.high + step * 1e-6; v += step) list.push_back(v);
  return list;
}

std::string label_of(double v) { return fmt::format("{:.4g}", std::fabs(v) < 1e-12 ? 0 : v); }

void fit(Axis& axis, double v) {
  axis.low = std::min(axis.low, v);
  axis.high = std::max(axis.high, v);
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\n': out += "↵"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string line_chart(const std::vector<Series>& series, const ChartOptions& options) {
  Axis x{HUGE_VAL, -HUGE_VAL, kLeft, options.width - kRight, options.log_x};
  Axis y{HUGE_VAL, -HUGE_VAL, options.height - kBottom, kTop, options.log_y};
  for (const Series& s : series) {
    for (const auto& [px, py] : s.points) {
      if (!std::isfinite(py) || (options.log_y && py <= 0)) continue;
      fit(x, px);
      fit(y, py);
    }
  }
  if (!(x.low <= x.high)) return "<p class=\"quiet\">Nothing to draw.</p>";
  if (options.line_at > 0) fit(y, options.line_at);
  if (options.log_y) {
    y.low = std::pow(10, std::floor(std::log10(y.low)));
    y.high = std::pow(10, std::ceil(std::log10(y.high) + 1e-9));
  } else {
    y.low = std::min(0.0, y.low);
    y.high += (y.high - y.low) * 0.06 + 1e-12;
  }
  std::string svg = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\" "
      "xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n",
      options.width, options.height, escape_markup(options.y_label + " against " + options.x_label));
  for (const double v : ticks(y)) {
    svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e4e4ea\"/>", x.from,
                       x.to, y.at(v), y.at(v));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#555\">{}</text>\n", x.from - 8,
                       y.at(v) + 4, label_of(v));
  }
  std::vector<std::pair<double, std::string>> x_ticks = options.x_ticks;
  if (x_ticks.empty()) {
    for (const double v : ticks(x)) x_ticks.emplace_back(v, label_of(v));
  }
  for (const auto& [v, text] : x_ticks) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n", x.at(v),
                       y.from + 18, escape_markup(text));
  }
  svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#888\"/>\n", x.from,
                     x.to, y.from);
  if (options.line_at > 0) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#c0392b\" stroke-dasharray=\"5 "
        "4\"/>"
        "<text x=\"{1:.1f}\" y=\"{3:.1f}\" text-anchor=\"end\" fill=\"#c0392b\">{4}</text>\n",
        x.from, x.to, y.at(options.line_at), y.at(options.line_at) - 5, escape_markup(options.line_label));
  }
  double legend = x.from;
  for (const Series& s : series) {
    std::string path;
    for (const auto& [px, py] : s.points) {
      if (!std::isfinite(py) || (options.log_y && py <= 0)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.at(px), y.at(py));
    }
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"/>\n",
                       path, s.colour);
    for (const auto& [px, py] : s.points) {
      if (!std::isfinite(py) || (options.log_y && py <= 0)) continue;
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"><title>{}: {:.5g}</title></circle>",
                         x.at(px), y.at(py), s.colour, escape_markup(s.name), py);
    }
    if (!s.name.empty()) {
      svg += fmt::format(
          "\n<rect x=\"{:.1f}\" y=\"6\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>"
          "<text x=\"{:.1f}\" y=\"16\" fill=\"#333\">{}</text>\n",
          legend, s.colour, legend + 17, escape_markup(s.name));
      legend += 34 + 7.0 * static_cast<double>(s.name.size());
    }
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#333\">{}</text>\n",
                     (x.from + x.to) / 2, options.height - 8, escape_markup(options.x_label));
  svg += fmt::format(
      "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\" fill=\"#333\">{}</text>\n",
      (y.from + y.to) / 2, escape_markup(options.y_label));
  return svg + "</svg>\n";
}

}  // namespace doppler
