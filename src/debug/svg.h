// Small charts as SVG text: axes, lines, bars. Colours come from the page's style sheet by class name.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace doppler {

std::string escape_markup(std::string_view text);

struct Series {
  std::string name, colour;
  std::vector<std::pair<double, double>> points;  // x, y
};

struct ChartOptions {
  std::string x_label, y_label;
  int width = 860, height = 320;
  bool log_y = false, log_x = false;
  std::vector<std::pair<double, std::string>> x_ticks = {};  // empty: chosen from the range
  double line_at = 0;                                        // a dashed horizontal line; 0: none
  std::string line_label = {};
};

std::string line_chart(const std::vector<Series>& series, const ChartOptions& options);

}  // namespace doppler
