// One self-contained page of a debug run: no script from elsewhere, no font, nothing to fetch.
#pragma once

#include <string_view>

#include "debug/compare.h"

namespace doppler {

struct AttentionHead {
  int layer = 0, head = 0;
  std::vector<float> weights;  // [rows, rows]; empty: not shown
  int rows = 0;
};

struct TokenProbability {
  std::string text;
  double probability = 0;  // the model gave it, having seen what is before it
};

struct PageContents {
  std::string model, backend, about;
  const Stages* run = nullptr;
  const Plan* plan = nullptr;
  const Comparison* comparison = nullptr;  // null: nothing was compared
  AttentionHead attention;
  std::vector<std::string> tokens;                 // the prompt's pieces
  std::vector<TokenProbability> probabilities;     // from the second token on
  std::vector<std::pair<std::string, float>> top;  // of the last position: text, logit
};

std::string debug_page(const PageContents& contents);

// What such a page looks like, for a style element.
std::string_view page_style();

}  // namespace doppler
