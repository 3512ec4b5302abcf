#include "gpu/run/expert_pager.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kDispatchesOfAStep = 3, kDispatchesOfALora = 2, kParamStride = 256;  // at most

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// The experts of one route: of one layer.
struct ExpertGroup {
  std::vector<const Step*> products;
  int64_t experts = 0, k = 0;
  uint64_t bytes = 0;  // of one expert, all its matrices
  int64_t pages = 0;   // that hold one expert each
};

std::vector<ExpertGroup> groups_of(const GpuContext& context) {
  std::map<int, ExpertGroup> by_route;
  for (const Step& step : context.plan.steps) {
    const auto* op = std::get_if<ExpertMatMul>(&step.op);
    if (!op) continue;
    ExpertGroup& group = by_route[step.inputs[1]];
    group.products.push_back(&step);
    group.experts = step.weights[0].shape[0];
    group.k = std::max<int64_t>(group.k, op->k);
    group.bytes +=
        static_cast<uint64_t>(step.weights[0].shape[1]) * context.weights.matrix(step.weights[0].slot).stride;
  }
  std::vector<ExpertGroup> groups;
  for (auto& [route, group] : by_route) groups.push_back(std::move(group));
  return groups;
}

// What a program takes besides the memory that all of them share.
uint64_t program_bytes(const GpuContext& context, int logit_rows) {
  uint64_t loras = 0;
  for (const auto& [slot, adapters] : context.loras) loras += adapters.size();
  uint64_t parts = 1, floats = static_cast<uint64_t>(context.config.hidden);
  for (const Step& step : context.plan.steps) {
    if (step.logits_only)
      floats += static_cast<uint64_t>(context.width(step.output)) * static_cast<uint64_t>(logit_rows);
    if (std::holds_alternative<ExpertMatMul>(step.op)) parts += 2;
  }
  return floats * sizeof(float) + parts * StepPart::kParamBytes +
         context.plan.steps.size() * kDispatchesOfAStep * kParamStride + loras * kDispatchesOfALora * kParamStride;
}

// As many for every layer as there is room for, and one more for the first of them. At least k.
void divide_pages(std::vector<ExpertGroup>& groups, uint64_t room) {
  for (ExpertGroup& group : groups) {
    group.pages = group.k;
    room -= static_cast<uint64_t>(group.k) * group.bytes;
  }
  for (bool more = true; more;) {
    more = false;
    for (ExpertGroup& group : groups) {
      if (group.pages == group.experts || group.bytes > room) continue;
      ++group.pages;
      room -= group.bytes;
      more = true;
    }
  }
}

// The pages of one matrix's experts.
struct PageTable {
  Tensor tensor;                   // where they come from
  std::vector<int64_t> page_of;    // by expert; -1: none
  std::vector<int64_t> expert_of;  // by page; -1: none
  std::vector<uint64_t> used;      // by page: when last
};

class Pager : public ExpertPager {
 public:
  Pager(GpuContext& context, const Weights& weights, const std::vector<ExpertGroup>& groups) : c_(context) {
    for (const ExpertGroup& group : groups) {
      for (const Step* product : group.products) {
        const std::string& slot = product->weights[0].slot;
        const Tensor& tensor = weights.at(slot);
        const auto pages = static_cast<size_t>(group.pages);
        c_.weights.set_matrix(slot, make_expert_pages(c_.device, tensor, group.pages));
        tables_[slot] = {tensor, std::vector<int64_t>(static_cast<size_t>(group.experts), -1),
                         std::vector<int64_t>(pages, -1), std::vector<uint64_t>(pages, 0)};
      }
    }
    c_.paged = true;
  }

  uint64_t hits() const override { return hits_; }
  uint64_t misses() const override { return misses_; }

  void run(StepProgram& program) override {
    const uint64_t hits = hits_, misses = misses_;
    int route = -1;
    for (StepPart& part : program.parts()) {
      if (!part.experts) {
        c_.device.submit(part.recording);
        continue;
      }
      if (route != part.experts->inputs[1]) read_route(program, *part.experts);
      route = part.experts->inputs[1];
      run_product(program, part);
    }
    if (tracing(Trace::kPerf)) {
      trace(Trace::kPerf, fmt::format("{} tokens at once: {} matrices of experts were on the GPU, {} were fetched",
                                      program.tokens(), hits_ - hits, misses_ - misses));
    }
  }

 private:
  // Whom the tokens chose: entries (token · k + place) by expert, in their order.
  void read_route(const StepProgram& program, const Step& step) {
    const ExpertMatmulShape shape = expert_shape(c_, step, program.tokens());
    const std::vector<float> route = read<float>(c_.device, program.route(step), shape.entries() * 2);
    chosen_.clear();
    for (uint64_t entry = 0; entry < shape.entries(); ++entry) {
      const float expert = route[entry / shape.k * 2 * shape.k + entry % shape.k];
      if (!(expert >= 0 && expert < static_cast<float>(shape.experts))) {
        fail({.code = ErrorCode::kInternal,
              .what = "a token chose an expert that there is not",
              .where = step.name,
              .expected = fmt::format("0 to {}", shape.experts - 1),
              .got = fmt::format("{}", expert)});
      }
      chosen_[static_cast<uint32_t>(expert)].push_back(static_cast<uint32_t>(entry));
    }
  }

  void run_product(StepProgram& program, StepPart& part) {
    const std::string& slot = part.experts->weights[0].slot;
    PageTable& table = tables_.at(slot);
    // Those that are there come first, so that no page is evicted that is still wanted.
    std::vector<uint32_t> order;
    for (const auto& [expert, entries] : chosen_) order.push_back(expert);
    std::stable_partition(order.begin(), order.end(), [&](uint32_t e) { return table.page_of[e] >= 0; });
    const ExpertMatmulShape shape = expert_shape(c_, *part.experts, program.tokens());
    for (size_t first = 0; first < order.size(); first += table.used.size()) {
      const size_t count = std::min(table.used.size(), order.size() - first);
      std::vector<uint32_t> entries, tiles;
      for (const uint32_t expert : std::span(order).subspan(first, count)) {
        const auto page = static_cast<uint32_t>(load_page(table, c_.weights.matrix(slot), expert));
        const std::vector<uint32_t>& own = chosen_.at(expert);
        for (size_t done = 0; done < own.size(); done += part.tile_tokens) {
          const size_t now = std::min<size_t>(part.tile_tokens, own.size() - done);
          tiles.insert(tiles.end(),
                       {expert, static_cast<uint32_t>(entries.size() + done), static_cast<uint32_t>(now), page});
        }
        entries.insert(entries.end(), own.begin(), own.end());
      }
      tiles.resize(expert_tiles(shape, part.tile_tokens) * 4, 0);
      write<uint32_t>(c_.device, program.map().entries.buffer, entries);
      write<uint32_t>(c_.device, program.map().tiles.buffer, tiles);
      c_.device.submit(part.recording);
    }
  }

  // Where the expert's rows are, fetched if they must be. Writes come after what was submitted before.
  int64_t load_page(PageTable& table, const Weight& weight, uint32_t expert) {
    int64_t& page = table.page_of[expert];
    if (page >= 0) {
      ++hits_;
    } else {
      ++misses_;
      page = std::min_element(table.used.begin(), table.used.end()) - table.used.begin();
      int64_t& holder = table.expert_of[static_cast<size_t>(page)];
      if (holder >= 0) table.page_of[static_cast<size_t>(holder)] = -1;
      holder = expert;
      upload_expert(c_.device, table.tensor, expert, weight, page);
    }
    table.used[static_cast<size_t>(page)] = ++clock_;
    return page;
  }

  GpuContext& c_;
  std::map<std::string, PageTable> tables_;  // by the matrix's slot in the plan
  std::map<uint32_t, std::vector<uint32_t>> chosen_;
  uint64_t clock_ = 0, hits_ = 0, misses_ = 0;
};

// What is taken whatever the pages, with the fewest experts, and with all of them.
struct Needs {
  uint64_t others, least, all;
};

Needs needs_of(const GpuContext& context, const std::vector<ExpertGroup>& groups, const GpuBudget& budget) {
  Needs needs{};
  needs.others = context.device.allocated_bytes() + program_bytes(context, budget.logit_rows) + budget.tapped;
  needs.least = needs.all = needs.others;
  for (const ExpertGroup& group : groups) {
    needs.least += static_cast<uint64_t>(group.k) * group.bytes;
    needs.all += static_cast<uint64_t>(group.experts) * group.bytes;
  }
  if (needs.least > budget.bytes) {
    fail(
        {ErrorCode::kMemory, "the model does not fit into the GPU memory it may take", "--gpu-memory",
         fmt::format("at least {} bytes ({:.1f} MiB){}{}", needs.least, mib(needs.least),
                     groups.empty() ? "" : ", with the experts of a single token",
                     budget.tapped > 0 ? fmt::format(" and {:.1f} MiB for what is looked at", mib(budget.tapped)) : ""),
         fmt::format("{} bytes", budget.bytes),
         budget.tapped > 0 ? "Allow it more, look at fewer layers (--layers), or use --backend cpu"
                           : "Allow it more, make the --context smaller, or use --backend cpu"});
  }
  return needs;
}

}  // namespace

Device& check_budget(Device& device, const ModelConfig& config, const Plan& plan, const Weights& weights,
                     const CacheSize& size, const GpuBudget& budget, const Adapters* adapters) {
  if (budget.bytes == 0) return device;
  device.measure(true);
  {
    GpuContext c(device, config, plan, weights, size, true, adapters);
    const ActivationBuffers memory(c, share_buffers(c.plan, single_steps(c.plan)), size.block);
    needs_of(c, groups_of(c), budget);
  }
  device.measure(false);
  return device;
}

uint64_t tapped_bytes(const GpuContext& context, const TapSteps& tapped, int tokens, int logit_rows) {
  uint64_t bytes = 0;
  for (const Step& step : context.plan.steps) {
    const auto rows = static_cast<uint64_t>(step.logits_only ? logit_rows : tokens);
    const uint64_t floats = static_cast<uint64_t>(context.width(step.output)) * rows;
    if (taps(tapped, step)) bytes += (floats + 3) / 4 * 16 + kParamStride;
  }
  return bytes;
}

std::unique_ptr<ExpertPager> place_experts(GpuContext& context, const Weights& weights, const GpuBudget& budget) {
  std::vector<ExpertGroup> groups = groups_of(context);
  const auto each = [&](const auto& weight_of) {
    for (const ExpertGroup& group : groups) {
      for (const Step* product : group.products) {
        const std::string& slot = product->weights[0].slot;
        context.weights.set_matrix(slot, weight_of(weights.at(slot)));
      }
    }
  };
  each(describe_weight);
  context.paged = false;
  const Needs needs = needs_of(context, groups, budget);
  if (needs.all <= budget.bytes) {
    each([&](const Tensor& tensor) { return upload_weight(context.device, tensor); });
    return nullptr;
  }
  divide_pages(groups, budget.bytes - needs.others);
  auto pager = std::make_unique<Pager>(context, weights, groups);
  if (tracing(Trace::kLoader)) {
    const auto [fewest, most] = std::minmax_element(
        groups.begin(), groups.end(), [](const ExpertGroup& a, const ExpertGroup& b) { return a.pages < b.pages; });
    trace(Trace::kLoader,
          fmt::format(
              "experts are paged: places for {} to {} of {} a layer; {:.1f} MiB on the GPU, all would be {:.1f}",
              fewest->pages, most->pages, groups[0].experts, mib(context.device.allocated_bytes()), mib(needs.all)));
  }
  return pager;
}

}  // namespace doppler::gpu
