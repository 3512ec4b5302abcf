#include "cli/kernel_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "debug/page.h"
#include "debug/svg.h"

namespace doppler {
namespace {

constexpr const char* kColours[] = {"#2b5fd9", "#c2410c", "#15803d", "#7e22ce",
                                    "#0e7490", "#a16207", "#be123c", "#475569"};
constexpr const char* kBarStyle =
    ".bar{display:inline-block;height:.7em;background:#2b5fd9;max-width:12em}td.v{font-size:80%;color:#888}";

double number_of(const Json& row, const char* key) { return row[key].get<double>(); }

std::string rows_of_op(const std::vector<const Json*>& rows) {
  std::string html =
      "<table><tr><th>case</th><th>time, µs</th><th>GB/s</th><th>of a "
      "copy</th><th></th><th>GFLOP/s</th><th>variant</th>"
      "</tr>";
  for (const Json* row : rows) {
    const double share = number_of(*row, "ofCopyBandwidth");
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f} %</td>"
        "<td><span class=\"bar\" style=\"width:{:.2f}em\"></span></td><td class=\"n\">{:.1f}</td>"
        "<td class=\"v\">{}</td></tr>\n",
        escape_markup((*row)["case"].get<std::string>()), number_of(*row, "microseconds"),
        number_of(*row, "gbPerSecond"), 100 * share, 12 * std::clamp(share, 0.0, 1.0),
        number_of(*row, "gflopPerSecond"), escape_markup((*row)["variant"].get<std::string>()));
  }
  return html + "</table>\n";
}

}  // namespace

std::string kernel_page(const Json& results) {
  std::map<std::string, std::vector<const Json*>> ops;
  for (const Json& row : results["kernels"]) ops[row["op"].get<std::string>()].push_back(&row);
  const double copy = results["copyGbPerSecond"].get<double>();
  const std::string device = escape_markup(results["device"].get<std::string>());
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Doppler kernels: {0}</title>\n<style>{1}{2}</style></head><body>\n"
      "<h1>Kernels on {0}</h1>\n<p class=\"quiet\">A plain copy moves {3:.0f} GB/s.</p>\n",
      device, page_style(), kBarStyle, copy);
  std::vector<Series> series;
  for (const auto& [op, rows] : ops) {
    Series one{op, kColours[series.size() % std::size(kColours)], {}};
    for (const Json* row : rows) {
      const double gb = number_of(*row, "gbPerSecond"), us = number_of(*row, "microseconds");
      if (gb > 0 && us > 0) one.points.emplace_back(gb * us / 1e3, gb);  // GB/s · µs is kB
    }
    std::sort(one.points.begin(), one.points.end());
    if (!one.points.empty()) series.push_back(std::move(one));
  }
  ChartOptions options{"MB read and written by a dispatch", "GB/s"};
  options.log_x = options.log_y = true;
  options.line_at = copy;
  options.line_label = "a copy";
  html += "<section id=\"speed\"><h2>What is reached, over what is moved</h2>\n" + line_chart(series, options) +
          "</section>\n";
  for (const auto& [op, rows] : ops) {
    html += fmt::format("<section><h2>{}</h2>\n{}</section>\n", escape_markup(op), rows_of_op(rows));
  }
  return html + "</body></html>\n";
}

}  // namespace doppler
