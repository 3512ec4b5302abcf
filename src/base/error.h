// Everything a user, a file, a network or a device can cause ends in fail().
//
// Natively fail() throws Failure, which only src/cli, src/api and src/serve catch. The browser build has no exceptions:
// there fail() hands the error to the host and never returns. So nothing below these may say `try` or `throw` but
// the thread pool, which hands what a worker throws to its caller; and input can never reach an assertion.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace doppler {

enum class ErrorCode {
  kUsage,        // the command line or an API argument is wrong
  kFile,         // a file is missing, unreadable, unwritable, or the disk is full
  kFormat,       // bytes that do not mean what they should: truncated, corrupt, contradictory
  kUnsupported,  // well formed, but something this engine does not do
  kMemory,       // it does not fit
  kDevice,       // the GPU or its driver refused or was lost
  kInternal,     // a bug of ours
};

// The exit code of the command line for an error of this kind (1 is kept for "checked, and found faulty").
int exit_code(ErrorCode code);
std::string_view name_of(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string what = {};      // one sentence: what went wrong
  std::string where = {};     // file, tensor, step, line: the place a person must look at
  std::string expected = {};  // optional
  std::string got = {};       // optional
  std::string todo = {};      // optional: what to do about it

  // "what (where): expected X, got Y. todo"
  std::string message() const;
};

[[noreturn]] void fail(Error error);

class Failure : public std::exception {
 public:
  explicit Failure(Error e) : error(std::move(e)), text_(error.message()) {}
  const char* what() const noexcept override { return text_.c_str(); }
  Error error;

 private:
  std::string text_;
};

}  // namespace doppler
