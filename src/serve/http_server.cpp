#include <fmt/format.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <cctype>
#include <map>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "serve/http.h"

namespace doppler::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Code = boost::system::error_code;
using Stream = beast::basic_stream<tcp, asio::strand<asio::io_context::executor_type>>;
using asio::use_awaitable;

// Bytes that may wait for a client that does not read them, and those it may send while it is being answered.
constexpr size_t kMostUnread = 8 << 20, kMostEarly = 64 << 10;
constexpr auto kNever = std::chrono::hours(24);
// Connections beyond the bound that are told so at once; even more are closed without a word.
constexpr int kMostRefused = 64;
// For what was cut off to be cleared away: its engine finishes a step, its line goes into the log.
constexpr auto kClearing = std::chrono::seconds(5);

std::string new_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req_{:016x}", random());
}

bool harmless_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.' && c != ':') return false;
  }
  return true;
}

class Connection;

}  // namespace

struct HttpServer::State {
  HttpOptions options;
  HttpHandlers handlers;
  std::atomic<int> connections{0}, answering{0};
  std::atomic<bool> draining{false};
  std::shared_ptr<std::atomic<uint64_t>> body_bytes = std::make_shared<std::atomic<uint64_t>>(0);
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<Connection>> all;  // under mutex
  asio::io_context io;                                   // what is left of connections goes with it
  tcp::acceptor acceptor{io};
};

namespace {

// Bytes of the bound on all bodies; given back when the last who keeps the body lets go.
class BodyRoom {
 public:
  // Null: there is no room.
  static std::shared_ptr<BodyRoom> take(const std::shared_ptr<std::atomic<uint64_t>>& taken, uint64_t bytes,
                                        uint64_t most) {
    if (taken->fetch_add(bytes) + bytes <= most) return std::make_shared<BodyRoom>(taken, bytes);
    taken->fetch_sub(bytes);
    return nullptr;
  }
  BodyRoom(std::shared_ptr<std::atomic<uint64_t>> taken, uint64_t bytes) : taken_(std::move(taken)), bytes_(bytes) {}
  ~BodyRoom() { taken_->fetch_sub(bytes_); }
  BodyRoom(const BodyRoom&) = delete;
  BodyRoom& operator=(const BodyRoom&) = delete;
  void shrink(uint64_t bytes) {
    if (bytes < bytes_) taken_->fetch_sub(bytes_ - std::exchange(bytes_, bytes));
  }

 private:
  std::shared_ptr<std::atomic<uint64_t>> taken_;
  uint64_t bytes_;
};

// One connection: requests one after another, each answered before the next is read. While one is answered the socket
// is watched, so that a client who hangs up is noticed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using State = HttpServer::State;
  Connection(State& state, Stream::socket_type socket)
      : state_(state), stream_(std::move(socket)), wake_(stream_.get_executor(), kNever) {
    Code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    const tcp::endpoint peer = stream_.socket().remote_endpoint(ignored);
    client_ = peer.address().to_string(ignored);
    ++state_.connections;
  }
  ~Connection() {
    --state_.connections;
    const std::lock_guard lock(state_.mutex);
    state_.all.erase(this);
  }

  // `welcome`: there is room for it; else it is told that there is none.
  asio::awaitable<void> serve(bool welcome);
  auto executor() { return stream_.get_executor(); }
  void cut();  // on the strand

 private:
  class Reply;
  enum class Read { kRequest, kAnswered, kEnd };  // a request to answer; it was refused; nothing more comes
  asio::awaitable<Read> read_request(HttpRequest& request);
  asio::awaitable<Read> send_refusal(const HttpRequest& head, HttpAnswer answer, bool body_is_read);
  asio::awaitable<Read> refuse(const HttpRequest& head, int status, std::string_view sentence);
  void take_head(const http::request<http::string_body>& message, HttpRequest& request);
  asio::awaitable<void> watch();
  asio::awaitable<bool> write_answer(Reply& reply);

  State& state_;
  Stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer wake_;  // cancelled when there is something to do
  std::string client_;
  std::weak_ptr<Reply> answering_;
  bool watching_ = false, answered_ = false, keep_alive_ = true, version_1_1_ = true;
};

class Connection::Reply : public HttpReply, public std::enable_shared_from_this<Reply> {
 public:
  Reply(std::shared_ptr<Connection> connection, const HttpRequest& request, bool version_1_1)
      : connection_(std::move(connection)), chunked_(version_1_1), bodiless_(request.method == "HEAD") {
    headers_.emplace_back("x-request-id", request.id);
    ++connection_->state_.answering;
  }
  ~Reply() override { --connection_->state_.answering; }

  void post(std::function<void()> work) override {
    asio::post(connection_->executor(), [self = shared_from_this(), work = std::move(work)] { work(); });
  }
  bool gone() const override { return gone_; }
  void on_gone(std::function<void()> work) override { on_gone_ = std::move(work); }
  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  void send(int status, std::string_view type, std::string body, Headers headers) override {
    if (begun()) return;
    std::string head = this->head(status, type);
    for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
    push(fmt::format("{}content-length: {}\r\n\r\n", head, body.size()));
    if (!bodiless_) push(std::move(body));
    finish();
  }
  void begin(std::string_view type, std::string ping) override {
    if (begun()) return;
    ping_ = std::move(ping);
    std::string head = this->head(200, type);
    head += "cache-control: no-cache\r\nx-accel-buffering: no\r\n";
    if (chunked_) head += "transfer-encoding: chunked\r\n";
    if (!chunked_) connection_->keep_alive_ = false;  // the end of the connection is the end of the body
    push(head + "\r\n");
    streaming_ = true;
  }
  void write(std::string bytes) override {
    if (streaming_ && !bytes.empty() && !ended_) push(frame(std::move(bytes)));
  }
  void end() override {
    if (ended_) return;
    if (streaming_ && chunked_) push("0\r\n\r\n");
    finish();
  }
  bool begun() const override { return status_ != 0; }
  int status() const override { return status_; }

  void hung_up() {
    if (gone_.exchange(true)) return;
    unsent_.clear();
    if (!ended_ && on_gone_) std::exchange(on_gone_, nullptr)();
    connection_->wake_.cancel();
  }

 private:
  friend class Connection;
  std::string head(int status, std::string_view type) {
    status_ = status;
    if (connection_->state_.draining) connection_->keep_alive_ = false;
    std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status,
                                   std::string_view(http::obsolete_reason(static_cast<http::status>(status))));
    if (!type.empty()) head += fmt::format("content-type: {}\r\n", type);
    head += connection_->keep_alive_ ? "connection: keep-alive\r\n" : "connection: close\r\n";
    for (const auto& [name, value] : headers_) head += fmt::format("{}: {}\r\n", name, value);
    return head;
  }
  std::string frame(std::string bytes) const {
    return chunked_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : bytes;
  }
  void push(std::string bytes) {
    if (gone_) return;
    unsent_ += bytes;
    connection_->wake_.cancel();
    if (unsent_.size() > kMostUnread && streaming_) hung_up();
  }
  void finish() {
    ended_ = true;
    on_gone_ = nullptr;
    connection_->wake_.cancel();
  }

  std::shared_ptr<Connection> connection_;
  const bool chunked_, bodiless_;
  Headers headers_;
  std::string unsent_, ping_;
  std::function<void()> on_gone_;
  std::atomic<bool> gone_{false};
  bool streaming_ = false, ended_ = false;
  int status_ = 0;
};

void Connection::cut() {
  keep_alive_ = false;
  if (const auto reply = answering_.lock(); reply && !reply->ended_) reply->hung_up();
  stream_.close();
}

asio::awaitable<void> Connection::serve(bool welcome) {
  const auto self = shared_from_this();
  if (!welcome) {
    HttpRequest unread;
    unread.client = client_;
    unread.arrived = std::chrono::steady_clock::now();
    co_await refuse(unread, 503, "too many connections");
    keep_alive_ = false;
  }
  for (bool first = true; keep_alive_; first = false) {
    stream_.expires_after(first ? state_.options.header_timeout : state_.options.idle_timeout);
    HttpRequest request;
    const Read read = co_await read_request(request);
    if (read == Read::kEnd) break;
    if (read == Read::kAnswered) continue;
    const auto reply = std::make_shared<Reply>(self, request, version_1_1_);
    answering_ = reply;
    watching_ = true;
    answered_ = false;
    std::weak_ptr<Reply> weak = reply;
    stream_.expires_never();
    asio::co_spawn(executor(), watch(), [self, weak](std::exception_ptr) {
      self->watching_ = false;
      if (const auto watched = weak.lock(); watched && !watched->ended_) watched->hung_up();
      self->wake_.cancel();
    });
    state_.handlers.handle(std::move(request), reply);
    const bool sent = co_await write_answer(*reply);
    if (!sent) break;
    answered_ = true;  // for a read that has ended already and that nothing cancels: its bytes are the next request
    stream_.cancel();
    while (watching_) {
      Code ignored;
      wake_.expires_after(kNever);
      co_await wake_.async_wait(asio::redirect_error(use_awaitable, ignored));
    }
  }
  Code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
}

// Ends when the client hangs up, says too much, or its request was answered.
asio::awaitable<void> Connection::watch() {
  const auto self = shared_from_this();
  Code error;
  while (!error && !answered_ && buffer_.size() < kMostEarly) {
    const size_t got =
        co_await stream_.async_read_some(buffer_.prepare(4096), asio::redirect_error(use_awaitable, error));
    buffer_.commit(got);
  }
}

// Whether all of it went out.
asio::awaitable<bool> Connection::write_answer(Reply& reply) {
  Code error;
  std::string sending;
  while (!reply.gone_) {
    if (reply.unsent_.empty()) {
      if (reply.ended_) co_return true;
      const bool pings = reply.streaming_ && !reply.ping_.empty();
      wake_.expires_after(pings ? std::chrono::steady_clock::duration(state_.options.ping_every) : kNever);
      Code waited;
      co_await wake_.async_wait(asio::redirect_error(use_awaitable, waited));
      if (!waited && pings && reply.unsent_.empty() && !reply.ended_) reply.unsent_ = reply.frame(reply.ping_);
      continue;
    }
    sending = std::exchange(reply.unsent_, {});
    stream_.expires_after(state_.options.write_timeout);
    co_await asio::async_write(stream_, asio::buffer(sending), asio::redirect_error(use_awaitable, error));
    if (error) reply.hung_up();
  }
  co_return false;
}

asio::awaitable<Connection::Read> Connection::refuse(const HttpRequest& head, int status, std::string_view sentence) {
  co_return co_await send_refusal(head, state_.handlers.refuse(head, status, sentence), false);
}

asio::awaitable<Connection::Read> Connection::send_refusal(const HttpRequest& head, HttpAnswer answer,
                                                           bool body_is_read) {
  keep_alive_ = keep_alive_ && body_is_read && !state_.draining;
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\ncontent-type: application/json\r\nconnection: {}\r\nx-request-id: {}\r\n",
                  answer.status, std::string_view(http::obsolete_reason(static_cast<http::status>(answer.status))),
                  keep_alive_ ? "keep-alive" : "close", head.id.empty() ? new_id() : head.id);
  for (const auto& [name, value] : answer.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += fmt::format("content-length: {}\r\n\r\n", answer.body.size());
  if (head.method != "HEAD") text += answer.body;
  Code error;
  stream_.expires_after(state_.options.write_timeout);
  co_await asio::async_write(stream_, asio::buffer(text), asio::redirect_error(use_awaitable, error));
  if (keep_alive_ && !error) co_return Read::kAnswered;
  // Closing with unread bytes would reset the connection, and the client would never read the answer.
  stream_.socket().shutdown(tcp::socket::shutdown_send, error);
  stream_.expires_after(std::chrono::seconds(2));
  for (size_t read = 0; !error && read < 64 * kMostEarly;) {
    buffer_.clear();
    read += co_await stream_.async_read_some(buffer_.prepare(kMostEarly), asio::redirect_error(use_awaitable, error));
  }
  co_return Read::kEnd;
}

void Connection::take_head(const http::request<http::string_body>& message, HttpRequest& request) {
  keep_alive_ = message.keep_alive();
  version_1_1_ = message.version() >= 11;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string& value = request.headers[name];
    value += (value.empty() ? "" : ", ") + std::string(field.value());
  }
  const std::string asked = request.header("x-request-id");
  request.id = harmless_id(asked) ? asked : new_id();
}

asio::awaitable<Connection::Read> Connection::read_request(HttpRequest& request) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(32 << 10);
  parser.body_limit(state_.options.body_limit);
  request.client = client_;
  Code error;
  co_await http::async_read_header(stream_, buffer_, parser, asio::redirect_error(use_awaitable, error));
  request.arrived = std::chrono::steady_clock::now();
  std::shared_ptr<BodyRoom> room;
  // A length beyond the bound is found when the head has been read.
  if (!error || error == http::error::body_limit) {
    take_head(parser.get(), request);
    if (auto answer = state_.handlers.check(request))
      co_return co_await send_refusal(request, std::move(*answer), !error && parser.is_done());
  }
  if (!error) {
    // Of a body in chunks only its bound is known.
    const uint64_t length = parser.content_length().value_or(parser.is_done() ? 0 : state_.options.body_limit);
    room = BodyRoom::take(state_.body_bytes, length, std::max(state_.options.bodies, state_.options.body_limit));
    if (!room) co_return co_await refuse(request, 503, "too many large requests at once");
  }
  if (!error && parser.get()[http::field::expect] == "100-continue") {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await asio::async_write(stream_, asio::buffer(kContinue), asio::redirect_error(use_awaitable, error));
  }
  if (!error) {
    stream_.expires_after(state_.options.body_timeout);
    co_await http::async_read(stream_, buffer_, parser, asio::redirect_error(use_awaitable, error));
  }
  if (error == http::error::body_limit)
    co_return co_await refuse(request, 413, fmt::format("the body is larger than {} bytes", state_.options.body_limit));
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    co_return co_await refuse(request, 431, "the headers are too long");
  if (error) {
    const bool theirs = error.category() == make_error_code(http::error::bad_method).category() &&
                        error != http::error::end_of_stream && error != http::error::partial_message;
    if (theirs) co_await refuse(request, 400, "this is not an HTTP request: " + error.message());
    co_return Read::kEnd;
  }
  request.body = std::move(parser.get().body());
  room->shrink(request.body.size());
  request.room = std::move(room);
  co_return Read::kRequest;
}

}  // namespace

HttpServer::HttpServer(const HttpOptions& options, HttpHandlers handlers) : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->handlers = std::move(handlers);
  Code error;
  const auto address = asio::ip::make_address(options.address, error);
  const tcp::endpoint endpoint(address, options.port);
  tcp::acceptor& acceptor = state_->acceptor;
  if (!error) acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    fail({.code = ErrorCode::kUsage,
          .what = "the server cannot listen here",
          .where = fmt::format("{} port {}", options.address, options.port),
          .got = error.message(),
          .todo = "Choose another --host or --port"});
  }
}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

void HttpServer::run(const std::function<bool()>& stopping, const std::function<void()>& draining,
                     std::chrono::milliseconds deadline) {
  State& state = *state_;
  const auto accept = [&state]() -> asio::awaitable<void> {
    while (state.acceptor.is_open()) {
      Code error;
      auto socket =
          co_await state.acceptor.async_accept(asio::make_strand(state.io), asio::redirect_error(use_awaitable, error));
      if (error == asio::error::operation_aborted) co_return;
      if (error) {  // no file descriptors left, most likely: let some go
        asio::steady_timer pause(state.io, std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
        continue;
      }
      const int others = state.connections;
      if (others >= state.options.connections + kMostRefused) continue;
      const auto connection = std::make_shared<Connection>(state, std::move(socket));
      {
        const std::lock_guard lock(state.mutex);
        state.all[connection.get()] = connection;
      }
      asio::co_spawn(connection->executor(), connection->serve(others < state.options.connections),
                     [connection](std::exception_ptr) {});
    }
  };
  asio::co_spawn(state.io, accept(), asio::detached);
  // Looks at the signal, then at what is left to answer.
  const auto supervise = [&]() -> asio::awaitable<void> {
    asio::steady_timer tick(state.io);
    const auto pause = [&tick]() -> asio::awaitable<void> {
      tick.expires_after(std::chrono::milliseconds(20));
      co_await tick.async_wait(use_awaitable);
    };
    while (!stopping()) co_await pause();
    state.draining = true;
    draining();
    auto end = std::chrono::steady_clock::now() + deadline;
    while (state.answering > 0 && std::chrono::steady_clock::now() < end) co_await pause();
    std::vector<std::shared_ptr<Connection>> left;  // let go outside the lock, which a connection's end takes
    {
      const std::lock_guard lock(state.mutex);
      for (const auto& [address, weak] : state.all) {
        if (auto connection = weak.lock()) left.push_back(std::move(connection));
      }
    }
    for (auto& connection : left) {
      const auto strand = connection->executor();
      asio::post(strand, [connection = std::move(connection)] { connection->cut(); });
    }
    end = std::chrono::steady_clock::now() + kClearing;
    while (state.answering > 0 && std::chrono::steady_clock::now() < end) co_await pause();
    state.io.stop();
  };
  asio::co_spawn(state.io, supervise(), asio::detached);
  std::vector<std::jthread> threads;
  try {
    for (int i = 1; i < state.options.threads; ++i) threads.emplace_back([&state] { state.io.run(); });
  } catch (const std::system_error&) {  // fewer, then: this one is enough
  }
  state.io.run();
}

}  // namespace doppler::serve
