// Numbers to bytes and back. Both ends are the same program on machines of the same byte order.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "cluster/transport.h"

namespace doppler {

class Writer {
 public:
  template <class T>
  Writer& put(const T& value) {
    return put_all(std::span(&value, 1));
  }
  template <class T, size_t N>
  Writer& put_all(std::span<T, N> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = std::as_bytes(values);
    message_.insert(message_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  template <class T>
  Writer& put_list(const std::vector<T>& values) {
    put(static_cast<uint32_t>(values.size()));
    return put_all(std::span(values));
  }
  Writer& put_text(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    return put_all(std::span(text.data(), text.size()));
  }
  size_t size() const { return message_.size(); }
  Message take() { return std::move(message_); }

 private:
  Message message_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes), left_(bytes) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> get_all(size_t count) {
    const std::span<const std::byte> bytes = take(count * sizeof(T));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class T>
  std::vector<T> get_list() {
    return get_all<T>(get<uint32_t>());
  }
  std::string get_text() {
    const std::vector<char> text = get_list<char>();
    return {text.begin(), text.end()};
  }
  size_t at() const { return bytes_.size() - left_.size(); }  // bytes read
  std::span<const std::byte> rest() const { return left_; }

 private:
  std::span<const std::byte> take(size_t bytes) {
    if (bytes > left_.size()) {
      fail({.code = ErrorCode::kInternal,
            .what = "a message between ranks is too short",
            .expected = std::to_string(at() + bytes) + " bytes or more",
            .got = std::to_string(bytes_.size())});
    }
    const std::span<const std::byte> taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }

  std::span<const std::byte> bytes_, left_;
};

}  // namespace doppler
