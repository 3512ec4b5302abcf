#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace doppler {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kLongestKey = 65535;     // the format's own limit
constexpr uint64_t kLongestName = 255;      // of a tensor; the format says 64, files in the wild go beyond
constexpr uint64_t kMaxStrings = 1u << 24;  // in one array: a list of views takes twice the bytes of empty strings
constexpr uint64_t kMaxWeights = 1ull << 44;
constexpr uint64_t kLeastPair = 8 + 4 + 1, kLeastTensor = 8 + 4 + 8 + 4 + 8, kLeastString = 8;

struct GgmlType {
  uint32_t number;
  DType dtype;
};
constexpr GgmlType kTypes[] = {
    {0, DType::kF32},    {1, DType::kF16},     {2, DType::kQ4_0},     {3, DType::kQ4_1},    {6, DType::kQ5_0},
    {7, DType::kQ5_1},   {8, DType::kQ8_0},    {10, DType::kQ2_K},    {11, DType::kQ3_K},   {12, DType::kQ4_K},
    {13, DType::kQ5_K},  {14, DType::kQ6_K},   {16, DType::kIQ2_XXS}, {17, DType::kIQ2_XS}, {18, DType::kIQ3_XXS},
    {19, DType::kIQ1_S}, {20, DType::kIQ4_NL}, {21, DType::kIQ3_S},   {22, DType::kIQ2_S},  {23, DType::kIQ4_XS},
    {30, DType::kBF16},  {39, DType::kMXFP4},
};
static_assert(std::size(kTypes) == kDTypeCount);

// Bytes of one element of an array of numbers; 0 for strings, arrays and unknown types.
size_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool: return 1;
    case GgufType::kUint16:
    case GgufType::kInt16: return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32: return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Numbers of any type, in the three kinds that hold them all.
std::variant<uint64_t, int64_t, double, bool> load_number(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::kUint8: return uint64_t{load<uint8_t>(p)};
    case GgufType::kInt8: return int64_t{load<int8_t>(p)};
    case GgufType::kUint16: return uint64_t{load<uint16_t>(p)};
    case GgufType::kInt16: return int64_t{load<int16_t>(p)};
    case GgufType::kUint32: return uint64_t{load<uint32_t>(p)};
    case GgufType::kInt32: return int64_t{load<int32_t>(p)};
    case GgufType::kFloat32: return double{load<float>(p)};
    case GgufType::kBool: return load<uint8_t>(p) != 0;
    case GgufType::kUint64: return load<uint64_t>(p);
    case GgufType::kInt64: return load<int64_t>(p);
    case GgufType::kFloat64: return load<double>(p);
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return uint64_t{0};
}

// Text from the file for a message: printable, and short.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += c >= ' ' && c < 127 ? c : '?';
  return out + (text.size() > 60 ? "…" : "");
}

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint64_t position() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  [[noreturn]] void wrong(const std::string& what, std::string expected = "", std::string got = "") const {
    fail({.code = ErrorCode::kFormat,
          .what = what,
          .where = fmt::format("{}, byte {}", where_, at_),
          .expected = std::move(expected),
          .got = std::move(got),
          .todo = "The file is damaged or was cut short; fetch it again"});
  }

  const std::byte* take(uint64_t count, const char* what) {
    if (count > left())
      wrong(fmt::format("the file ends inside {}", what), fmt::format("{} bytes", count),
            fmt::format("{} left", left()));
    const std::byte* p = bytes_.data() + at_;
    at_ += count;
    return p;
  }
  template <class T>
  T number(const char* what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view string(const char* what, uint64_t longest) {
    const auto length = number<uint64_t>(what);
    if (length > longest || length > left()) {
      wrong(fmt::format("the length of {} is impossible", what), fmt::format("at most {}", std::min(longest, left())),
            std::to_string(length));
    }
    return {reinterpret_cast<const char*>(take(length, what)), static_cast<size_t>(length)};
  }
  // A number of things that take at least `least` bytes each.
  uint64_t count(const char* what, uint64_t least) {
    const auto n = number<uint64_t>(what);
    if (n > left() / least) {
      wrong(fmt::format("the number of {} is more than the file can hold", what),
            fmt::format("at most {}", left() / least), std::to_string(n));
    }
    return n;
  }

  GgufValue value(std::string_view key) {
    GgufValue out;
    out.type = type(key);
    if (out.type == GgufType::kString) {
      out.value = string("a value", left());
    } else if (out.type == GgufType::kArray) {
      out.value = array(key);
    } else {
      const auto loaded = load_number(out.type, take(element_bytes(out.type), "a value"));
      std::visit([&](auto v) { out.value = v; }, loaded);
    }
    return out;
  }

 private:
  GgufType type(std::string_view key) {
    const auto number_of_type = number<uint32_t>("a value's type");
    if (number_of_type > static_cast<uint32_t>(GgufType::kFloat64)) {
      wrong("a value has a type that does not exist", "0 to 12",
            fmt::format("{} for '{}'", number_of_type, shown(key)));
    }
    return static_cast<GgufType>(number_of_type);
  }

  GgufArray array(std::string_view key) {
    GgufArray out;
    out.type = type(key);
    if (out.type == GgufType::kArray) {
      wrong("an array holds arrays, which no model's metadata needs", "numbers or strings", shown(key));
    }
    if (out.type != GgufType::kString) {
      const size_t bytes = element_bytes(out.type);
      out.count = count("array elements", bytes);
      out.raw = {take(out.count * bytes, "an array"), static_cast<size_t>(out.count * bytes)};
      return out;
    }
    out.count = count("strings in an array", kLeastString);
    if (out.count > kMaxStrings) {
      wrong("an array holds too many strings", fmt::format("at most {}", kMaxStrings), std::to_string(out.count));
    }
    out.strings.reserve(out.count);
    for (uint64_t i = 0; i < out.count; ++i) out.strings.push_back(string("a string of an array", left()));
    return out;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  uint64_t at_ = 0;
};

struct Placed {
  uint64_t begin, end;
  std::string_view name;
};

void check_distinct(std::vector<Placed> places, const HeaderReader& in) {
  std::sort(places.begin(), places.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin < places[i - 1].end) {
      in.wrong("two tensors overlap", "", fmt::format("{} and {}", shown(places[i - 1].name), shown(places[i].name)));
    }
  }
}

}  // namespace

double GgufArray::number(uint64_t index) const {
  const size_t bytes = element_bytes(type);
  if (bytes == 0 || index >= count) return 0;
  return std::visit([](auto v) { return static_cast<double>(v); }, load_number(type, raw.data() + index * bytes));
}

double GgufValue::number() const {
  if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  return 0;
}

std::string_view GgufValue::string() const {
  const auto* s = std::get_if<std::string_view>(&value);
  return s ? *s : std::string_view();
}

bool dtype_from_ggml(uint32_t number, DType& out) {
  for (const GgmlType& type : kTypes) {
    if (type.number == number) {
      out = type.dtype;
      return true;
    }
  }
  return false;
}

uint32_t ggml_number(DType dtype) {
  for (const GgmlType& type : kTypes) {
    if (type.dtype == dtype) return type.number;
  }
  return 0;
}

GgufFile::GgufFile(const std::filesystem::path& path) {
  const std::filesystem::path first = gguf_part(path, 1);
  const bool split = !first.empty() && file_exists(first);
  where_ = split ? first.string() : path.string();
  file_ = MappedFile(where_);
  bytes_ = file_.bytes();
  read();
  join_parts(where_);
}

GgufFile::GgufFile(std::span<const std::byte> bytes, const std::string& where) : where_(where), bytes_(bytes) {
  read();
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

const Tensor* GgufFile::tensor(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::read() {
  size_ = bytes_.size();
  HeaderReader in(bytes_, where_);
  if (bytes_.size() < kMagic.size() || std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) {
    const std::string_view got(reinterpret_cast<const char*>(bytes_.data()), std::min<size_t>(4, bytes_.size()));
    fail({.code = ErrorCode::kFormat,
          .what = "this is not a GGUF file",
          .where = where_,
          .expected = "GGUF in its first four bytes",
          .got = bytes_.empty() ? "an empty file" : "'" + shown(got) + "'"});
  }
  in.take(kMagic.size(), "the magic");
  const auto version = in.number<uint32_t>("the version");
  if (version != 2 && version != 3) {
    const bool swapped = version == 2u << 24 || version == 3u << 24;
    fail({.code = ErrorCode::kUnsupported,
          .what = swapped ? "this is a big-endian GGUF file" : "this version of GGUF cannot be read",
          .where = where_,
          .expected = "version 2 or 3, little-endian",
          .got = swapped ? "" : std::to_string(version),
          .todo = "Convert the model again with a current converter"});
  }
  const uint64_t tensor_count = in.count("tensors", kLeastTensor);
  const uint64_t pair_count = in.count("metadata keys", kLeastPair);
  for (uint64_t i = 0; i < pair_count; ++i) {
    const std::string_view key = in.string("a metadata key", kLongestKey);
    if (key.empty()) in.wrong("a metadata key is empty");
    if (metadata_.contains(key)) in.wrong("a metadata key is there twice", "", shown(key));
    metadata_.emplace(key, in.value(key));
  }
  uint64_t alignment = kGgufAlignment;
  if (const GgufValue* told = find("general.alignment")) {
    const double n = told->is_number() ? told->number() : 0;
    alignment = n >= 1 && n <= (1 << 20) ? static_cast<uint64_t>(n) : 0;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      in.wrong("general.alignment is impossible", "a power of two up to 2^20", fmt::format("{}", n));
    }
  }

  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    Tensor tensor;
    const std::string_view name = in.string("a tensor's name", kLongestName);
    tensor.name = name;
    const auto dims = in.number<uint32_t>("a tensor");
    if (name.empty() || std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c > 126; })) {
      in.wrong("a tensor's name is empty or not plain text", "", shown(name));
    }
    if (dims < 1 || dims > 4) {
      in.wrong("a tensor has an impossible number of dimensions", "1 to 4",
               fmt::format("{} for {}", dims, shown(name)));
    }
    uint64_t weights = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const auto n = in.number<uint64_t>("a tensor's dimensions");
      if (n == 0 || n > kMaxWeights / weights) {
        in.wrong("a tensor has an absurd dimension", fmt::format("1 to 2^44 weights"),
                 fmt::format("{} for {}", n, shown(name)));
      }
      weights *= n;
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(n));
    }
    const auto type = in.number<uint32_t>("a tensor's type");
    if (!dtype_from_ggml(type, tensor.dtype)) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "a tensor has a type that cannot be read",
            .where = where_ + ": " + shown(name),
            .got = fmt::format("ggml type {}", type)});
    }
    const auto cols = static_cast<uint64_t>(tensor.cols());
    const auto block = static_cast<uint64_t>(info(tensor.dtype).block_weights);
    if (cols % block != 0) {
      in.wrong(fmt::format("a row of {} is not a whole number of {} blocks", shown(name), name_of(tensor.dtype)),
               fmt::format("a multiple of {}", block), std::to_string(cols));
    }
    offsets.push_back(in.number<uint64_t>("a tensor's offset"));
    if (!by_name_.emplace(name, tensors_.size()).second) in.wrong("a tensor is there twice", "", shown(name));
    tensors_.push_back(std::move(tensor));
  }

  const uint64_t data = (in.position() + alignment - 1) / alignment * alignment;
  if (tensor_count > 0 && data > bytes_.size()) in.wrong("the file ends before the tensors' bytes");
  const uint64_t room = data > bytes_.size() ? 0 : bytes_.size() - data;
  std::vector<Placed> places;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    const uint64_t size = static_cast<uint64_t>(tensor.rows()) * tensor.stride();
    if (offsets[i] % alignment != 0) {
      in.wrong(fmt::format("{} begins at an offset that is not aligned", shown(tensor.name)),
               fmt::format("a multiple of {}", alignment), std::to_string(offsets[i]));
    }
    if (offsets[i] > room || size > room - offsets[i]) {
      in.wrong(fmt::format("{} reaches past the end of the file", shown(tensor.name)),
               fmt::format("{} bytes of tensors", room), fmt::format("{} bytes from byte {}", size, offsets[i]));
    }
    tensor.bytes = bytes_.subspan(data + offsets[i], size);
    places.push_back({offsets[i], offsets[i] + size, tensor.name});
  }
  check_distinct(std::move(places), in);
}

bool is_gguf(const std::filesystem::path& path) {
  if (!is_file(path)) return false;
  std::array<char, 4> magic{};
  FileReader file(path);
  size_t size = 0;
  while (const size_t n = file.read(std::as_writable_bytes(std::span(magic)).subspan(size))) size += n;
  return std::string_view(magic.data(), size) == kMagic;
}

}  // namespace doppler
