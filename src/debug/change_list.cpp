#include "debug/change_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace doppler {

int ChangeList::width() const { return model_.plan.values[static_cast<size_t>(step().output)].width; }

void ChangeList::add(std::string subject, std::string planned, std::string instead, Edit edit) {
  const auto same = std::find_if(changes_.begin(), changes_.end(), [&](const Change& c) {
    return c.subject == subject && c.planned == planned && c.instead == instead &&
           model_.plan.steps[c.edits[0].first].op.index() == model_.plan.steps[step_].op.index();
  });
  if (same == changes_.end()) {
    changes_.push_back({{{step_, std::move(edit)}}, std::move(subject), std::move(planned), std::move(instead)});
  } else if (same->edits.back().first != step_) {
    same->edits.emplace_back(step_, std::move(edit));
  }
}

std::vector<Change> ChangeList::take() {
  std::vector<Change> list;
  for (const Change& change : changes_) {
    list.push_back(change);
    if (change.edits.size() == 1) continue;
    Change some = change;
    std::erase_if(some.edits, [&](const auto& edit) {
      const std::string& name = model_.plan.steps[edit.first].name;
      return name.find(".q_") == std::string::npos && name.find(".k_") == std::string::npos;
    });
    if (some.edits.size() > 1 && some.edits.size() < change.edits.size()) list.push_back(some);
    for (const auto& edit : change.edits) {
      some.edits = {edit};
      list.push_back(some);
    }
  }
  return list;
}

std::string plain_number(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 1e10;
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{:g}", value);
}

}  // namespace doppler
