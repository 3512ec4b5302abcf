// The chat page that / shows, put into the program by cmake/serve.cmake.
#pragma once

#include <string_view>

namespace doppler::serve {

std::string_view chat_page();

}  // namespace doppler::serve
