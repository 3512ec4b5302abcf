#include <fmt/format.h>

#include <memory>

#include "base/json.h"
#include "base/say.h"
#include "cli/devices.h"
#include "cli/verbs.h"
#include "gpu/webgpu/device.h"

namespace doppler {
namespace {

std::string mebibytes(uint64_t bytes) { return fmt::format("{} MiB", bytes >> 20); }

}  // namespace

Json to_json(const gpu::AdapterInfo& adapter) {
  const gpu::Capabilities& c = adapter.capabilities;
  const gpu::Limits& l = c.limits;
  Json json;
  json["name"] = adapter.name;
  json["vendor"] = adapter.vendor;
  json["architecture"] = adapter.architecture;
  json["driver"] = adapter.description;
  json["backend"] = adapter.backend;
  json["type"] = adapter.type;
  json["vendorId"] = adapter.vendor_id;
  json["deviceId"] = adapter.device_id;
  json["features"] = {
      {"subgroups", c.subgroups},    {"subgroupMinSize", c.subgroup_min},   {"subgroupMaxSize", c.subgroup_max},
      {"shaderF16", c.f16},          {"subgroupMatrix", c.subgroup_matrix}, {"f16Matrices", c.f16_matrices},
      {"packedInt8Dot", c.int8_dot}, {"timestampQuery", c.timestamps}};
  json["limits"] = {{"maxBufferSize", l.max_buffer_bytes},
                    {"maxStorageBufferBindingSize", l.max_binding_bytes},
                    {"maxUniformBufferBindingSize", l.max_uniform_bytes},
                    {"maxStorageBuffersPerShaderStage", l.storage_buffers},
                    {"minUniformBufferOffsetAlignment", l.uniform_alignment},
                    {"minStorageBufferOffsetAlignment", l.storage_alignment},
                    {"maxComputeWorkgroupStorageSize", l.workgroup_bytes},
                    {"maxComputeInvocationsPerWorkgroup", l.invocations},
                    {"maxComputeWorkgroupsPerDimension", l.workgroups_per_dimension}};
  return json;
}

std::string to_text(size_t index, const gpu::AdapterInfo& adapter) {
  const gpu::Capabilities& c = adapter.capabilities;
  const gpu::Limits& l = c.limits;
  std::string features;
  auto feature = [&](bool there, const std::string& name) {
    if (there) features += (features.empty() ? "" : ", ") + name;
  };
  feature(c.subgroups, c.subgroup_min == c.subgroup_max
                           ? fmt::format("subgroups of {}", c.subgroup_min)
                           : fmt::format("subgroups of {} to {}", c.subgroup_min, c.subgroup_max));
  feature(c.f16, "f16 in shaders");
  feature(c.subgroup_matrix, c.f16_matrices ? "subgroup matrices (prompts use them)" : "subgroup matrices");
  feature(c.int8_dot, "packed int8 dot products");
  feature(c.timestamps, "timestamps");
  std::string text = fmt::format("{}  {}\n", index, visible(adapter.name));
  text += fmt::format("   {} ({}{}{}), {}\n", adapter.type, adapter.vendor, adapter.architecture.empty() ? "" : " ",
                      adapter.architecture, adapter.backend);
  text += fmt::format("   driver    {}\n", adapter.description.empty() ? "not told" : visible(adapter.description));
  text += fmt::format("   features  {}\n", features.empty() ? "none of the optional ones" : features);
  text += fmt::format("   memory    buffers up to {}, bindings up to {}\n", mebibytes(l.max_buffer_bytes),
                      mebibytes(l.max_binding_bytes));
  text += fmt::format("   kernels   {} storage buffers, {} KiB workgroup memory, {} threads a workgroup\n",
                      l.storage_buffers, l.workgroup_bytes >> 10, l.invocations);
  return text;
}

void add_devices(Verb app) {
  auto json = std::make_shared<bool>(false);
  Verb devices = app.add_verb("devices", "List the GPUs that WebGPU offers here");
  devices.add_flag("--json", *json, "Print one JSON array");
  devices.footer(
      "The number of a device is what --device takes.\nExample:\n  doppler devices\n"
      "Without a GPU, software Vulkan will do for trying:\n"
      "  VK_ICD_FILENAMES=/usr/lib/chromium/vk_swiftshader_icd.json doppler devices");
  devices.callback([json] {
    const std::vector<gpu::AdapterInfo> adapters = gpu::list_adapters();
    if (*json) {
      Json array = Json::array();
      for (const gpu::AdapterInfo& adapter : adapters) array.push_back(to_json(adapter));
      fmt::print("{}\n", array.dump(1));
      return;
    }
    for (size_t i = 0; i < adapters.size(); ++i) fmt::print("{}", to_text(i, adapters[i]));
  });
}

}  // namespace doppler
