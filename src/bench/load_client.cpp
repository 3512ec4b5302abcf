#include "bench/load_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/version.h"
#include "engine/random.h"

namespace doppler {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr size_t kMostText = 64 << 10;  // bytes that are kept of a body that is no answer

LoadClock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<LoadClock::duration>(std::chrono::duration<double>(seconds));
}

// Nothing is lost: what a coroutine throws leaves io_context::run().
void rethrow(std::exception_ptr thrown) {
  if (thrown) std::rethrow_exception(thrown);
}

struct Connection {
  explicit Connection(asio::io_context& io) : stream(io) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};

}  // namespace

struct LoadClient::Inside {
  LoadTarget target;
  asio::io_context io{1};
  std::vector<tcp::endpoint> endpoints;
  std::vector<std::unique_ptr<Connection>> idle;  // kept alive; the last one used comes first

  std::string message(const HttpExchange& exchange) const;
  asio::awaitable<void> answer(HttpExchange& exchange);
  asio::awaitable<bool> try_answer(HttpExchange& exchange, const std::string& message);
};

std::string LoadClient::Inside::message(const HttpExchange& exchange) const {
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\nhost: {}:{}\r\nuser-agent: doppler/{}\r\naccept: */*\r\n",
                                 exchange.body.empty() ? "GET" : "POST", target.base, exchange.path, target.host,
                                 target.port, kVersion);
  if (!target.api_key.empty()) head += fmt::format("authorization: Bearer {}\r\n", target.api_key);
  if (exchange.body.empty()) return head + "\r\n";
  return head + fmt::format("content-type: application/json\r\ncontent-length: {}\r\n\r\n{}", exchange.body.size(),
                            exchange.body);
}

asio::awaitable<void> LoadClient::Inside::answer(HttpExchange& exchange) {
  const std::string text = message(exchange);
  exchange.sent = LoadClock::now();
  while (!co_await try_answer(exchange, text)) {
  }
  exchange.ended = LoadClock::now();
}

// False if the connection was an old one that the server had closed: nothing happened, another one will do.
asio::awaitable<bool> LoadClient::Inside::try_answer(HttpExchange& exchange, const std::string& message) {
  Code error;
  const auto failed = [&](const char* kind) {
    exchange.failure = error == beast::error::timeout ? "timeout" : kind;
    exchange.text = error.message();
  };
  const bool old = !idle.empty();
  std::unique_ptr<Connection> connection = old ? std::move(idle.back()) : std::make_unique<Connection>(io);
  if (old) idle.pop_back();
  beast::tcp_stream& stream = connection->stream;
  stream.expires_at(exchange.sent + seconds_of(target.timeout_s));
  if (!old) {
    co_await stream.async_connect(endpoints, asio::redirect_error(use_awaitable, error));
    if (error) {
      failed("no connection");
      co_return true;
    }
    stream.socket().set_option(tcp::no_delay(true), error);
  }
  co_await asio::async_write(stream, asio::buffer(message), asio::redirect_error(use_awaitable, error));
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  parser.eager(false);  // each chunk when it is there; an eager parser waits for the next one's head
  std::array<char, 16 << 10> piece;
  bool begun = false;
  while (!error && !parser.is_done()) {
    http::buffer_body::value_type& body = parser.get().body();
    body.data = piece.data();
    body.size = piece.size();
    const size_t read =
        co_await http::async_read_some(stream, connection->buffer, parser, asio::redirect_error(use_awaitable, error));
    const LoadClock::time_point at = LoadClock::now();
    begun = begun || read > 0;
    if (error == http::error::need_buffer) error = {};  // the piece is full, and more is there
    if (parser.is_header_done()) exchange.status = parser.get().result_int();
    const std::string_view bytes(piece.data(), piece.size() - body.size);
    if (bytes.empty()) continue;
    if (exchange.status == 200) {
      exchange.on_bytes(bytes, at);
    } else if (exchange.text.size() < kMostText) {
      exchange.text += bytes;
    }
  }
  if (error && old && !begun && error != beast::error::timeout) co_return false;
  if (error) {
    failed("connection lost");
  } else if (exchange.status != 200) {
    exchange.failure = fmt::format("HTTP {}", exchange.status);
  }
  if (!error && parser.keep_alive()) idle.push_back(std::move(connection));
  co_return true;
}

LoadClient::LoadClient(LoadTarget target) : inside_(std::make_unique<Inside>()) {
  std::string name = target.host;
  if (name.starts_with('[')) name = name.substr(1, name.size() - 2);
  if (name == "localhost") name = "127.0.0.1";  // also where no resolver knows it, as on a bare machine
  Code error;
  tcp::resolver resolver(inside_->io);
  for (const auto& found : resolver.resolve(name, std::to_string(target.port), error)) {
    inside_->endpoints.push_back(found.endpoint());
    if (found.endpoint().address().is_loopback() || target.remote) continue;
    fail({.code = ErrorCode::kUsage,
          .what = "this is a load generator, and the address is not on this machine",
          .where = target.host,
          .got = found.endpoint().address().to_string(),
          .todo = "Add --remote if the server is yours, or its owner agrees to the load"});
  }
  if (error) {
    fail({.code = ErrorCode::kFile, .what = "there is no such host", .where = target.host, .got = error.message()});
  }
  inside_->target = std::move(target);
}

LoadClient::~LoadClient() = default;

void LoadClient::ask(HttpExchange& exchange) {
  inside_->io.restart();
  asio::co_spawn(inside_->io, inside_->answer(exchange), rethrow);
  inside_->io.run();
}

void LoadClient::run(const Load& load) {
  asio::io_context& io = inside_->io;
  io.restart();
  const LoadClock::time_point start = LoadClock::now();
  int sent = 0;
  const auto more = [&](LoadClock::time_point at) {
    return (load.requests == 0 || sent < load.requests) && (load.seconds <= 0 || at < start + seconds_of(load.seconds));
  };
  const auto answer = [&](HttpExchange& exchange) -> asio::awaitable<void> {
    co_await inside_->answer(exchange);
    load.done(exchange);
  };
  const auto client = [&]() -> asio::awaitable<void> {
    for (auto now = start; more(now); now = LoadClock::now()) {
      ++sent;
      co_await answer(load.next(now));
    }
  };
  const auto arrivals = [&]() -> asio::awaitable<void> {
    asio::steady_timer timer(io);
    for (LoadClock::time_point due = start;; ++sent) {
      due += seconds_of(-std::log1p(-uniform(load.seed, static_cast<uint64_t>(sent))) / load.rate);
      if (!more(due)) break;
      timer.expires_at(due);
      Code ignored;
      co_await timer.async_wait(asio::redirect_error(use_awaitable, ignored));
      asio::co_spawn(io, answer(load.next(due)), rethrow);
    }
  };
  if (load.rate > 0) asio::co_spawn(io, arrivals(), rethrow);
  for (int i = 0; load.rate <= 0 && i < load.clients; ++i) asio::co_spawn(io, client(), rethrow);
  io.run();
}

}  // namespace doppler
