#include "ref/ops.h"

namespace doppler::ref {

void add(In a, In b, Out out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] + b[i];
}

}  // namespace doppler::ref
