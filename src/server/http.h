// HTTP on one port, over libevent: requests in, answers and streams of pieces out, and the news
// that a client has left. Knows no JSON and no engine. All but post() happens in the thread that
// calls run(); handlers must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hadal {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;                       // 0: any free one
  int64_t max_body_bytes = 16ll << 20;   // larger ones get 413
  int64_t max_header_bytes = 64 << 10;   // request line and headers
  int idle_seconds = 90;                 // no byte for so long: the connection is closed
  int64_t max_unsent_bytes = 8ll << 20;  // a client that reads slower than this is dropped
};

struct HttpRequest {
  std::string method, path, query, body;
  std::string peer;  // address of the client
  std::vector<std::pair<std::string, std::string>> headers;

  // The header's value, or "". Names in any case.
  std::string header(std::string_view name) const;
};

// One request and its answer. Kept alive by whoever answers; the client may leave at any time,
// after which all calls do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  const HttpRequest& request() const { return request_; }

  // A header of the answer; before reply() or start_stream().
  virtual void add_header(const std::string& name, const std::string& value) = 0;
  virtual void reply(int status, const std::string& content_type, const std::string& body) = 0;
  // Status 200 and the header; then pieces, each sent at once; then the end.
  virtual void start_stream(const std::string& content_type) = 0;
  virtual void send(std::string_view piece) = 0;
  virtual void finish() = 0;

  // Called once if the client leaves before the answer's end.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
  int status() const { return status_; }  // of the answer; 0 before, 499 where the client left
  // Called once, when the answer has been handed to the system or the client has left.
  void on_done(std::function<void(Exchange&)> callback) { done_ = std::move(callback); }

 protected:
  HttpRequest request_;
  int status_ = 0;
  std::function<void(Exchange&)> done_;
};

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;

  // Binds the port. Error: the address is wrong or taken.
  static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options, Handler handler);
  // Closes, and runs what was posted since.
  ~HttpServer();

  int port() const;
  // Serves until stop(), or until drain() and the end of all answers.
  void run();
  // Runs `task` in the loop's thread, in order; from any thread.
  void post(std::function<void()> task);
  // Takes no new connections; run() returns when nothing is unanswered.
  void drain();
  bool draining() const;
  void stop();
  // After run(): closes all connections; who answers hears that the client is gone.
  void close();
  // Calls `handler` for each of these signals while run() runs.
  void on_signals(const std::vector<int>& signals, std::function<void()> handler);
  int open_exchanges() const;

  struct Impl;

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// "Not Found".
const char* reason_phrase(int status);

}  // namespace hadal
