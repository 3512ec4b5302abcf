// The engine as the page's worker sees it: one model, one conversation, requests and answers as JSON.
#pragma once

#include <memory>
#include <optional>

#include "base/json.h"
#include "engine/decode_loop.h"
#include "engine/loaded_model.h"
#include "engine/perplexity.h"
#include "engine/session.h"

namespace doppler::web {

class WebEngine {
 public:
  // `request` names a verb and its arguments; see the members below.
  Json answer(const Json& request);

 private:
  Json load(const Json& request);
  Json encode(const Json& request);    // text, or messages by the chat template, to ids
  Json decode(const Json& request);    // ids to text
  Json generate(const Json& request);  // pieces go to the host as they come
  Json debug(const Json& request);     // what every step of a prompt computes, to the host
  Json bench(const Json& request);     // one run of a benchmark
  Json score(const Json& request);     // how likely given tokens are

  TapSteps tapped_steps(const Json& request);
  void tap(TapSteps steps);  // from now on the host sees what these steps put out
  void untap();
  Session& session();

  std::optional<LoadedModel> model_;
  std::unique_ptr<Session> session_;
  int batch_ = 0;  // tokens per batch of a benchmark, 0: by its pace, which is kept from run to run
  DecodePace pace_{0};
  bool tapped_ = false;
};

}  // namespace doppler::web
