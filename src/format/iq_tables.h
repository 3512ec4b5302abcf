// The code books of ggml's IQ types: which short vectors of magnitudes a code can stand for.
//
// ggml publishes each book as a list of points, eight (IQ1, IQ2) or four (IQ3) small values a point. Every list is
// sorted, so a book is a set: here it is kept as one bit for each point that could exist, and unfolded on first use.
#pragma once

#include <array>
#include <cstdint>

namespace doppler {

using Point8 = std::array<int8_t, 8>;
using Point4 = std::array<int8_t, 4>;

struct IqTables {
  std::array<Point8, 256> iq2_xxs;   // magnitudes 8, 25, 43
  std::array<Point8, 512> iq2_xs;    // magnitudes 8, 25, 43
  std::array<Point8, 1024> iq2_s;    // magnitudes 8, 25, 43
  std::array<Point8, 2048> iq1_s;    // -1, 0, 1
  std::array<Point4, 256> iq3_xxs;   // magnitudes 4, 12 … 52, 62
  std::array<Point4, 512> iq3_s;     // magnitudes 1, 3 … 15
  std::array<uint8_t, 128> parity8;  // seven sign bits and the eighth that makes their number even
};

const IqTables& iq_tables();

// The sixteen levels of IQ4_NL and IQ4_XS.
inline constexpr std::array<int8_t, 16> kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace doppler
