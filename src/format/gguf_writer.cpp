#include "format/gguf_writer.h"

#include <fmt/format.h>

#include "base/error.h"

namespace doppler {
namespace {

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_string(std::string& out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

uint64_t aligned(uint64_t n) { return (n + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment; }

}  // namespace

void GgufHeader::key(std::string_view name, GgufType type) {
  append_string(pairs_, name);
  append(pairs_, static_cast<uint32_t>(type));
  ++pair_count_;
}

void GgufHeader::put(std::string_view name, std::string_view text) {
  key(name, GgufType::kString);
  append_string(pairs_, text);
}

void GgufHeader::put(std::string_view name, uint32_t number) {
  key(name, GgufType::kUint32);
  append(pairs_, number);
}

void GgufHeader::put(std::string_view name, float number) {
  key(name, GgufType::kFloat32);
  append(pairs_, number);
}

void GgufHeader::put(std::string_view name, bool flag) {
  key(name, GgufType::kBool);
  append(pairs_, static_cast<uint8_t>(flag));
}

void GgufHeader::put(std::string_view name, const std::vector<std::string>& texts) {
  key(name, GgufType::kArray);
  append(pairs_, static_cast<uint32_t>(GgufType::kString));
  append(pairs_, static_cast<uint64_t>(texts.size()));
  for (const std::string& text : texts) append_string(pairs_, text);
}

void GgufHeader::put(std::string_view name, const std::vector<float>& numbers) {
  key(name, GgufType::kArray);
  append(pairs_, static_cast<uint32_t>(GgufType::kFloat32));
  append(pairs_, static_cast<uint64_t>(numbers.size()));
  for (const float number : numbers) append(pairs_, number);
}

void GgufHeader::put(std::string_view name, const std::vector<int32_t>& numbers) {
  key(name, GgufType::kArray);
  append(pairs_, static_cast<uint32_t>(GgufType::kInt32));
  append(pairs_, static_cast<uint64_t>(numbers.size()));
  for (const int32_t number : numbers) append(pairs_, number);
}

void GgufHeader::add_tensor(std::string name, DType dtype, const std::vector<int64_t>& shape) {
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= static_cast<uint64_t>(shape[i]);
  const auto cols = static_cast<size_t>(shape.back());
  if (cols % static_cast<size_t>(info(dtype).block_weights) != 0) {
    fail({.code = ErrorCode::kInternal,
          .what = "a GGUF row must be whole blocks",
          .where = name,
          .expected = std::string(name_of(dtype)),
          .got = std::to_string(cols)});
  }
  const uint64_t offset = aligned(end_), size = rows * row_bytes(dtype, cols);
  tensors_.push_back({std::move(name), dtype, shape, offset, size});
  end_ = offset + size;
}

uint64_t GgufHeader::tensor_bytes() const { return aligned(end_); }

std::string GgufHeader::bytes() const {
  std::string out = "GGUF";
  append(out, kGgufVersion);
  append(out, static_cast<uint64_t>(tensors_.size()));
  append(out, pair_count_);
  out += pairs_;
  for (const Entry& tensor : tensors_) {
    append_string(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) append(out, static_cast<uint64_t>(tensor.shape[i]));
    append(out, ggml_number(tensor.dtype));
    append(out, tensor.offset);
  }
  out.resize(aligned(out.size()));
  return out;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, GgufHeader header)
    : header_(std::move(header)), lock_(path), file_(path) {
  const std::string bytes = header_.bytes();
  file_.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  const bool fits = tensor_ < header_.tensors_.size() && bytes.size() <= header_.tensors_[tensor_].size - done_;
  if (!fits) fail({.code = ErrorCode::kInternal, .what = "more bytes than the GGUF header announced"});
  file_.write(bytes);
  done_ += bytes.size();
  const uint64_t size = header_.tensors_[tensor_].size;
  if (done_ < size) return;
  constexpr std::byte kZeros[kGgufAlignment] = {};
  file_.write(std::span(kZeros).first(aligned(size) - size));
  ++tensor_;
  done_ = 0;
}

void GgufWriter::commit() {
  if (tensor_ != header_.tensors_.size()) {
    fail({.code = ErrorCode::kInternal,
          .what = "a tensor's bytes were not written",
          .where = header_.tensors_[tensor_].name});
  }
  file_.commit();
}

}  // namespace doppler
