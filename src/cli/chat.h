// doppler run --chat: a conversation in a terminal, or line by line from a pipe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/conversation.h"
#include "engine/loaded_model.h"
#include "engine/session.h"

namespace doppler {

// How models are opened with the options of the command line.
struct ChatSetup {
  std::function<LoadedModel(const std::string& path)> open;
  std::function<std::unique_ptr<Session>(const LoadedModel& model)> start;  // the model outlives the session
  std::function<GenerateOptions(const LoadedModel& model)> options;
};

// Answers on standard output, all else on standard error. Without a terminal the first error ends the conversation, as
// Failure; with one it is said, and the conversation goes on. `first`: a question to begin with; may be empty.
void chat(const ChatSetup& setup, LoadedModel model, Conversation opening, const std::string& first);

}  // namespace doppler
