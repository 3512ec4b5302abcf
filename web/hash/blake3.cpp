// BLAKE3 as a module of its own, with the functions of sha256.cpp. Behind its digest lies that of the variant which
// goes by its name (base/blake3.h).
#include "base/blake3.h"

namespace {

constexpr uint32_t kRoom = 1 << 20;
alignas(16) uint8_t room[kRoom];
struct State {
  doppler::Blake3 standard, variant{doppler::Blake3::kVariant};
};
State* state() {
  static State one;
  return &one;
}

}  // namespace

extern "C" {

__attribute__((export_name("input"))) uint8_t* input() { return room; }
__attribute__((export_name("room"))) uint32_t input_room() { return kRoom; }
__attribute__((export_name("start"))) void start() {
  state()->standard.reset();
  state()->variant.reset();
}

__attribute__((export_name("update"))) void update(uint32_t bytes) {
  state()->standard.update(room, bytes);
  state()->variant.update(room, bytes);
}

__attribute__((export_name("finish"))) void finish() {
  state()->standard.finish(room);
  state()->variant.finish(room + 32);
}

}  // extern "C"
