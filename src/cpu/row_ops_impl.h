// The operations on one row of activations, written once over the vector of the including file (simd_*.h), which
// must say DOPPLER_ISA.
#pragma once

namespace doppler::cpu::DOPPLER_ISA {
namespace {

// e^x for −87.3 ≤ x ≤ 88.3, clamped outside. x = n·ln2 + r with |r| ≤ ln2/2, then seven terms of the series: the
// remainder is 5e-9, rounding adds about 2e-7 relative.
inline Vf vexp(Vf x) {
  x = max(set1(-87.3f), min(set1(88.3f), x));  // this order lets NaN through
  const Vf n = round(mul(x, set1(1.44269504f)));
  Vf r = fnma(n, set1(0.693359375f), x);  // ln2 in two parts, the first exact in few bits
  r = fnma(n, set1(-2.12194440e-4f), r);
  Vf p = set1(1.0f / 5040);
  p = fma(p, r, set1(1.0f / 720));
  p = fma(p, r, set1(1.0f / 120));
  p = fma(p, r, set1(1.0f / 24));
  p = fma(p, r, set1(1.0f / 6));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return times_pow2(p, n);
}

// Absolute error under 2e-7.
inline Vf vtanh(Vf x) {
  const Vf e = vexp(mul(abs(x), set1(-2.0f)));
  return copy_sign(div(sub(set1(1.0f), e), add(set1(1.0f), e)), x);
}

inline Vf vsigmoid(Vf x) { return div(set1(1.0f), add(set1(1.0f), vexp(sub(zero(), x)))); }

// Calls f(i, lanes) for each vector of [0, n): whole vectors, then the rest.
template <class Function>
inline void by_vector(int n, Function&& f) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, n - i);
}
inline Vf load_part(const float* p, int lanes) { return lanes == kLanes ? load(p) : load_n(p, lanes); }
inline void store_part(float* p, Vf a, int lanes) {
  if (lanes == kLanes) {
    store(p, a);
  } else {
    store_n(p, a, lanes);
  }
}

void norm(const float* x, const float* w, float* out, int n, int group, float eps) {
  for (int start = 0; start < n; start += group) {
    const float* in = x + start;
    Vf squares[2] = {zero(), zero()};
    by_vector(group, [&](int i, int lanes) {
      const Vf a = load_part(in + i, lanes);
      Vf& sum = squares[(i / kLanes) & 1];
      sum = fma(a, a, sum);
    });
    const float mean = sum_lanes(add(squares[0], squares[1])) / static_cast<float>(group);
    const Vf scale = set1(1.0f / __builtin_sqrtf(mean + eps));
    by_vector(group, [&](int i, int lanes) {
      store_part(out + start + i, mul(mul(load_part(in + i, lanes), scale), load_part(w + i, lanes)), lanes);
    });
  }
}

void add_rows(const float* a, const float* b, float* out, int n) {
  by_vector(
      n, [&](int i, int lanes) { store_part(out + i, add(load_part(a + i, lanes), load_part(b + i, lanes)), lanes); });
}

void axpy(float a, const float* x, float* out, int n) {
  const Vf factor = set1(a);
  by_vector(n, [&](int i, int lanes) {
    store_part(out + i, fma(factor, load_part(x + i, lanes), load_part(out + i, lanes)), lanes);
  });
}

void exp_row(const float* x, float* out, int n) {
  by_vector(n, [&](int i, int lanes) { store_part(out + i, vexp(load_part(x + i, lanes)), lanes); });
}

void softcap(const float* x, float* out, int n, float cap) {
  const Vf top = set1(cap), inverse = set1(1.0f / cap);
  by_vector(
      n, [&](int i, int lanes) { store_part(out + i, mul(top, vtanh(mul(load_part(x + i, lanes), inverse))), lanes); });
}

void rope(const float* x, const float* cosines, const float* sines, float* out, int width, int head_dim, int dims) {
  const int half = dims / 2;
  for (int head = 0; head < width; head += head_dim) {
    const float* low = x + head;
    const float* high = low + half;
    by_vector(half, [&](int i, int lanes) {
      const Vf a = load_part(low + i, lanes), b = load_part(high + i, lanes);
      const Vf c = load_part(cosines + i, lanes), s = load_part(sines + i, lanes);
      store_part(out + head + i, fnma(b, s, mul(a, c)), lanes);
      store_part(out + head + half + i, fma(a, s, mul(b, c)), lanes);
    });
    for (int i = head + dims; i < head + head_dim; ++i) out[i] = x[i];
  }
}

inline Vf glu_one(const GluParams& params, Vf g, Vf u) {
  if (params.activation == 0) {  // gelu_tanh: 0.5·(1 + tanh(y)) = sigmoid(2y)
    const Vf y = mul(mul(g, set1(1.5957691216f)), fma(mul(g, g), set1(0.044715f), set1(1.0f)));
    return mul(mul(g, vsigmoid(y)), u);
  }
  if (params.activation == 1) return mul(mul(g, vsigmoid(g)), u);  // silu
  if (params.activation == 3) return mul(vsigmoid(g), u);
  const Vf limit = set1(params.limit);
  const Vf low = min(limit, g), linear = max(sub(zero(), limit), min(limit, u));  // this order lets NaN through
  return mul(mul(low, vsigmoid(mul(low, set1(params.alpha)))), add(linear, set1(1.0f)));
}

void glu(const GluParams& params, const float* gate, const float* up, float* out, int n) {
  by_vector(n, [&](int i, int lanes) {
    store_part(out + i, glu_one(params, load_part(gate + i, lanes), load_part(up + i, lanes)), lanes);
  });
}

void glu_interleaved(const GluParams& params, const float* gate_up, float* out, int n) {
  by_vector(n, [&](int i, int lanes) {
    Vf g, u;
    if (lanes == kLanes) {
      deinterleave(gate_up + 2 * i, g, u);
    } else {
      float part[2 * kLanes] = {};
      for (int j = 0; j < 2 * lanes; ++j) part[j] = gate_up[2 * i + j];
      deinterleave(part, g, u);
    }
    store_part(out + i, glu_one(params, g, u), lanes);
  });
}

void convolve(const float* const* x, const float* w, size_t stride, int kernel, const float* gate, float* out, int n) {
  by_vector(n, [&](int c, int lanes) {
    Vf sum = mul(load_part(w + c, lanes), load_part(x[0] + c, lanes));
    for (int i = 1; i < kernel; ++i)
      sum = fma(load_part(w + static_cast<size_t>(i) * stride + c, lanes), load_part(x[i] + c, lanes), sum);
    store_part(out + c, mul(sum, gate ? load_part(gate + c, lanes) : vsigmoid(sum)), lanes);
  });
}

void delta_step(float* s, const float* q, const float* k, const float* v, float kept, float beta, int key_dim,
                int value_dim, float* out) {
  by_vector(value_dim, [&](int j, int lanes) {
    Vf known = zero(), read = zero();
    for (int i = 0; i < key_dim; ++i) known = fma(set1(k[i]), load_part(s + i * value_dim + j, lanes), known);
    const Vf keep = set1(kept), change = mul(set1(beta), fnma(keep, known, load_part(v + j, lanes)));
    for (int i = 0; i < key_dim; ++i) {
      float* at = s + i * value_dim + j;
      const Vf now = fma(set1(k[i]), change, mul(keep, load_part(at, lanes)));
      read = fma(set1(q[i]), now, read);
      store_part(at, now, lanes);
    }
    store_part(out + j, read, lanes);
  });
}

// Whether numbers with this largest magnitude can be quantised. Others (nothing worth a scale, or one that is not
// finite) get quants of zero and a scale that carries NaN on.
struct Scale {
  bool usable;
  float other;
  explicit Scale(float most) : usable(most > 1e-30f && most < 3e38f), other(most < 1.0f ? 0.0f : __builtin_nanf("")) {}
};

// A group of n ≤ 32 values, filled up with zeros.
struct Group {
  const float* x;
  float most;  // the largest magnitude
  alignas(64) float part[kGroup];

  Group(const float* values, int n) : x(values) {
    if (n < kGroup) {
      for (int i = 0; i < kGroup; ++i) part[i] = i < n ? values[i] : 0.0f;
      x = part;
    }
    most = max_abs32(x);
  }
  bool has_scale() const { return Scale(most).usable; }
  float other_scale() const { return Scale(most).other; }
};

void quantize_group(const float* x, int n, ActBlock* block, int g) {
  const Group group(x, n);
  int8_t* q = block->q + group_offset(g);
  int32_t* zero = block->zero16 + 2 * g;
  int32_t sums[2] = {0, 0};
  if (group.has_scale()) {
    block->d[g] = group.most / 127.0f;
    quantize32(group.x, 127.0f / group.most, q, sums[0], sums[1]);
    block->ds[g] = block->d[g] * static_cast<float>(sums[0] + sums[1]);
  } else {
    for (int i = 0; i < kGroup; ++i) q[i] = 0;
    block->d[g] = block->ds[g] = group.other_scale();
  }
  for (int half = 0; half < 2; ++half) zero[half] = -32 * sums[half];
}

void quantize_wide_group(const float* x, int n, WideBlock* block, int g) {
  const Group group(x, n);
  constexpr float kMost = 127 * 128;
  int8_t* high = block->high + group_offset(g);
  int8_t* low = block->low + group_offset(g);
  if (group.has_scale()) {
    block->d[g] = group.most / kMost;
    const int32_t sum = quantize32_wide(group.x, kMost / group.most, high, low);
    block->ds[g] = block->d[g] * static_cast<float>(sum);
  } else {
    for (int i = 0; i < kGroup; ++i) high[i] = low[i] = 0;
    block->d[g] = block->ds[g] = group.other_scale();
  }
}

// Calls f(values, how many, block, group) for every group of the blocks that hold n values.
template <class Function>
inline void by_group(const float* x, int n, Function&& f) {
  const int groups = (n + kBlock - 1) / kBlock * (kBlock / kGroup);
  for (int g = 0; g < groups; ++g) {
    const int start = g * kGroup;
    const int count = n - start > kGroup ? kGroup : n > start ? n - start : 0;
    f(x + (count > 0 ? start : 0), count, start / kBlock, g % (kBlock / kGroup));
  }
}

void quantize(const float* x, int n, ActBlock* out) {
  by_group(x, n, [&](const float* v, int count, int b, int g) { quantize_group(v, count, out + b, g); });
}

void quantize_wide(const float* x, int n, WideBlock* out) {
  by_group(x, n, [&](const float* v, int count, int b, int g) { quantize_wide_group(v, count, out + b, g); });
}

float to_i16(const float* x, int16_t* out, int n) {
  float most = 0;
  bool finite = true;
  by_vector(n, [&](int i, int lanes) {
    const Vf a = abs(load_part(x + i, lanes));
    const float here = max_lanes(a);
    finite &= sum_lanes(sub(a, a)) == 0.0f;  // inf − inf and NaN − NaN are NaN
    most = here > most ? here : most;
  });
  const bool some = finite && most > 1e-30f;
  const Vf inverse = set1(some ? 32767.0f / most : 0.0f);
  by_vector(n, [&](int i, int lanes) {
    store_i16_n(out + i, finite ? mul(load_part(x + i, lanes), inverse) : zero(), lanes);
  });
  return some ? most / 32767.0f : finite ? 0.0f : __builtin_nanf("");
}

}  // namespace
}  // namespace doppler::cpu::DOPPLER_ISA
