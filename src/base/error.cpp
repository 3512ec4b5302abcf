#include "base/error.h"

#if !defined(__cpp_exceptions)
// The browser host turns this into a JavaScript error; frames between here and the host are lost, not unwound.
extern "C" [[noreturn]] __attribute__((import_module("host"), import_name("fail"))) void host_fail(int code,
                                                                                                   const char* text,
                                                                                                   int length);
#endif

namespace doppler {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage: return 2;
    case ErrorCode::kFile: return 3;
    case ErrorCode::kFormat: return 4;
    case ErrorCode::kUnsupported: return 5;
    case ErrorCode::kMemory: return 6;
    case ErrorCode::kDevice: return 7;
    case ErrorCode::kInternal: return 70;
  }
  return 70;
}

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage: return "usage";
    case ErrorCode::kFile: return "file";
    case ErrorCode::kFormat: return "format";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kMemory: return "memory";
    case ErrorCode::kDevice: return "device";
    case ErrorCode::kInternal: return "internal";
  }
  return "internal";
}

std::string Error::message() const {
  std::string text = what;
  if (!where.empty()) text += " (" + where + ")";
  if (!expected.empty()) text += ": expected " + expected;
  if (!got.empty()) text += (expected.empty() ? ": got " : ", got ") + got;
  if (!todo.empty()) text += ". " + todo;
  return text;
}

void fail(Error error) {
#if defined(__cpp_exceptions)
  throw Failure(std::move(error));
#else
  const std::string text = error.message();
  host_fail(exit_code(error.code), text.data(), static_cast<int>(text.size()));
#endif
}

}  // namespace doppler
