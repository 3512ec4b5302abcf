// A client of plain sockets, for what no HTTP library lets one say: half a request, nothing at all.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace doppler::serve {

class Loopback {
 public:
  explicit Loopback(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const timeval minute{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  }
  ~Loopback() { ::close(socket_); }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  void say(std::string_view bytes) { ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // One answer that tells its length, head and body; or what came before the end.
  std::string hear() {
    while (true) {
      const size_t end = heard_.find("\r\n\r\n");
      if (end != std::string::npos) {
        const size_t at = heard_.find("content-length: ");
        const size_t length = at < end ? std::stoul(heard_.substr(at + 16, 20)) : 0;
        if (heard_.size() >= end + 4 + length) {
          const std::string answer = heard_.substr(0, end + 4 + length);
          heard_.erase(0, answer.size());
          return answer;
        }
      }
      char bytes[4096];
      const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
      if (got <= 0) return std::exchange(heard_, {});
      heard_.append(bytes, static_cast<size_t>(got));
    }
  }
  std::string ask(std::string_view bytes) {
    say(bytes);
    return hear();
  }
  bool closed() {  // after what was heard
    char byte = 0;
    return ::recv(socket_, &byte, 1, 0) == 0;
  }

 private:
  int socket_;
  std::string heard_;
};

inline int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

inline std::string body_of(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace doppler::serve
