// A stable merge sort that is safe with any comparison: values from outside (NaN) need not be in any order, and
// std::stable_sort may then do anything.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace doppler::jinja {

template <class T, class Less>
void stable_sort(std::vector<T>& items, Less less) {
  std::vector<T> merged(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size()), end = std::min(begin + 2 * width, items.size());
      size_t a = begin, b = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_b = b < end && (a == middle || less(items[b], items[a]));
        merged[out] = std::move(items[take_b ? b++ : a++]);
      }
    }
    items.swap(merged);
  }
}

}  // namespace doppler::jinja
