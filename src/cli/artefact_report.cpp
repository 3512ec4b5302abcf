#include "cli/artefact_report.h"

#include <fmt/format.h>

#include "base/progress.h"
#include "base/say.h"

namespace doppler {
namespace {

std::string class_name(QuantClass quant) { return quant == QuantClass::kKeep ? "kept" : std::string(name_of(quant)); }

}  // namespace

std::string megabytes(uint64_t bytes) { return with_prefix(static_cast<double>(bytes)) + "B"; }

std::string to_table(const ArtefactReport& report, bool errors) {
  std::string out = fmt::format("{:<10} {:<6} {:>7} {:>9} {:>9} {:>11}{}\n", "class", "dtype", "tensors", "weights",
                                "bytes", "bits/weight", errors ? "  rel. error" : "");
  uint64_t tensors = 0, bytes = 0;
  for (const ClassReport& line : report.classes) {
    out += fmt::format("{:<10} {:<6} {:>7} {:>9} {:>9} {:>11.2f}", class_name(line.quant), name_of(line.dtype),
                       line.tensors, with_prefix(static_cast<double>(line.weights)), megabytes(line.bytes),
                       line.bits_per_weight());
    out += errors ? fmt::format("  {:>10.5f}\n", line.relative_error()) : "\n";
    tensors += line.tensors;
    bytes += line.bytes;
  }
  const double bits = report.weights ? static_cast<double>(bytes) * 8 / static_cast<double>(report.weights) : 0;
  out += fmt::format("{:<10} {:<6} {:>7} {:>9} {:>9} {:>11.2f}\n", "all", "", tensors,
                     with_prefix(static_cast<double>(report.weights)), megabytes(bytes), bits);
  const double rate = report.seconds > 0 ? static_cast<double>(report.weights) / report.seconds : 0;
  out += fmt::format("{} in {} shard{}, {:.1f} s, {}weights/s\n", megabytes(report.bytes), report.shards,
                     report.shards == 1 ? "" : "s", report.seconds, with_prefix(rate));
  for (const std::string& note : report.notes) out += "note: " + visible(note) + "\n";
  return out;
}

Json to_json(const ArtefactReport& report, bool errors) {
  Json classes = Json::array();
  for (const ClassReport& line : report.classes) {
    Json item = {
        {"class", class_name(line.quant)}, {"dtype", name_of(line.dtype)}, {"tensors", line.tensors},
        {"weights", line.weights},         {"bytes", line.bytes},          {"bits_per_weight", line.bits_per_weight()}};
    if (errors) item["relative_error"] = line.relative_error();
    classes.push_back(std::move(item));
  }
  return {{"weights", report.weights}, {"bytes", report.bytes},         {"shards", report.shards},
          {"seconds", report.seconds}, {"classes", std::move(classes)}, {"notes", report.notes}};
}

}  // namespace doppler
