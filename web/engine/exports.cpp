// What the module exports. One call at a time: the host keeps a queue.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "web_engine.h"

namespace {

doppler::web::WebEngine& engine() {
  static doppler::web::WebEngine instance;
  return instance;
}
std::string answer_text;

}  // namespace

extern "C" {

// Memory for a request; the host frees it after the call.
__attribute__((export_name("allocate"))) void* doppler_allocate(size_t bytes) { return std::malloc(bytes); }
__attribute__((export_name("release"))) void doppler_release(void* memory) { std::free(memory); }

// Answers a request, JSON in UTF-8. Returns the answer's length; answer() says where it is.
__attribute__((export_name("call"))) size_t doppler_call(const char* request, size_t length) {
  using doppler::Json;
  const Json json = doppler::parse_json({request, length}, "request");
  answer_text = engine().answer(json).dump();
  return answer_text.size();
}
__attribute__((export_name("answer"))) const char* doppler_answer() { return answer_text.data(); }

}  // extern "C"
