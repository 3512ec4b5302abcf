// Record once, replay: a Recording is a list of dispatches and copies with everything they need prepared. Submitting it
// costs half a microsecond per dispatch; it may be submitted any number of times.
//
// Parameters lie in slots of uniform buffers that belong to the recording. They are written when first submitted, and
// again only where set_params() changed them; such a write is ordered after earlier submits, so a slot is never changed
// under a submit in flight. What changes with every token (position, kv length) lives in a storage buffer that kernels
// advance themselves.
#pragma once

#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "gpu/webgpu/device.h"

namespace doppler::gpu {

struct Grid {
  uint32_t x = 1, y = 1, z = 1;  // workgroups
  bool operator==(const Grid&) const = default;
};

// A grid of at least `workgroups` in x and y for kernels that number their workgroups with workgroup_index()
// (ops/lib/common.wgsl); it may hold more than asked for, which the kernel must skip. Fails if it cannot be.
Grid linear_grid(uint64_t workgroups, const Limits& limits);

inline uint32_t div_up(uint64_t n, uint64_t d) { return static_cast<uint32_t>((n + d - 1) / d); }

class Recording {
 public:
  // chunk_bytes: parameters are kept in buffers of this size, 128 dispatches each at the largest alignment.
  Recording(Device& device, std::string label, size_t chunk_bytes = 32 << 10)
      : device_(&device), label_(std::move(label)), chunk_bytes_(chunk_bytes) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Adds a dispatch of kernel K (a struct made by the generator) under a step's name. Returns its number.
  // WebGPU forbids that a buffer a dispatch writes is bound to the same dispatch a second time.
  template <class K>
  size_t dispatch(std::string step, const Variant& variant, const typename K::Params& params,
                  const typename K::Buffers& buffers, Grid grid) {
    static_assert(sizeof(typename K::Params) % 4 == 0 || std::is_empty_v<typename K::Params>);
    const auto list = buffers.list();
    return add(std::move(step), K::source(), variant, std::as_bytes(std::span(&params, 1)), list, grid);
  }

  // Changes the parameters or the grid of an earlier dispatch, from the next submit on.
  template <class K>
  void set_params(size_t dispatch, const typename K::Params& params) {
    set(dispatch, K::source(), std::as_bytes(std::span(&params, 1)));
  }
  void set_grid(size_t dispatch, Grid grid);

  // Sizes and offsets are multiples of 4.
  void copy(std::string step, const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
            uint64_t bytes);
  void clear(std::string step, const Buffer& buffer, uint64_t offset, uint64_t bytes);

  size_t dispatches() const { return dispatch_count_; }
  const std::string& label() const { return label_; }
  Device& device() const { return *device_; }

  struct Dispatch {
    std::string step;
    Kernel kernel;
    BindGroup bind_group;
    Grid grid;
    size_t chunk, offset;  // of its parameters
  };
  struct Copy {
    std::string step;
    Buffer from;  // none: the target is cleared
    uint64_t from_offset;
    Buffer to;
    uint64_t to_offset, bytes;
  };
  using Command = std::variant<Dispatch, Copy>;
  const std::vector<Command>& commands() const { return commands_; }

  // Writes parameters that changed since the last call; the device calls it before it submits.
  void flush_params();

 private:
  struct ParamChunk {
    Buffer buffer;
    std::vector<std::byte> bytes;
    size_t used = 0, dirty_begin = 0, dirty_end = 0;
  };
  size_t add(std::string step, const KernelSource& source, const Variant& variant, std::span<const std::byte> params,
             std::span<const BoundBuffer> buffers, Grid grid);
  void set(size_t dispatch, const KernelSource& source, std::span<const std::byte> params);
  Dispatch& dispatch_at(size_t dispatch);

  Device* device_;
  std::string label_;
  size_t chunk_bytes_;
  std::vector<Command> commands_;
  std::vector<size_t> dispatch_commands_;  // command number of dispatch i
  std::vector<ParamChunk> chunks_;
  size_t dispatch_count_ = 0;
};

}  // namespace doppler::gpu
