// The evhttp side. Two things that it does not do are done here: it stops reading while a request
// is answered, so a client that leaves is noticed by an event of our own on the socket; and it owns
// its requests in ways that depend on how a connection ends, which `Answer` keeps track of.
#include "server/http.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

namespace hadal {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Base = std::unique_ptr<event_base, Deleter<event_base_free>>;
using Event = std::unique_ptr<event, Deleter<event_free>>;
using Http = std::unique_ptr<evhttp, Deleter<evhttp_free>>;
using Bytes = std::unique_ptr<evbuffer, Deleter<evbuffer_free>>;

const char* method_name(evhttp_cmd_type method) {
  switch (method) {
    case EVHTTP_REQ_GET:
      return "GET";
    case EVHTTP_REQ_POST:
      return "POST";
    case EVHTTP_REQ_HEAD:
      return "HEAD";
    case EVHTTP_REQ_PUT:
      return "PUT";
    case EVHTTP_REQ_DELETE:
      return "DELETE";
    case EVHTTP_REQ_OPTIONS:
      return "OPTIONS";
    case EVHTTP_REQ_PATCH:
      return "PATCH";
    default:
      return "OTHER";
  }
}

Bytes bytes_of(std::string_view text) {
  Bytes buffer(evbuffer_new());
  HADAL_CHECK(buffer && evbuffer_add(buffer.get(), text.data(), text.size()) == 0, "memory");
  return buffer;
}

// As many sockets as this process may have.
void raise_file_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct HttpServer::Impl {
  HttpOptions options;
  Handler handler;
  Base base;
  Event wake;
  Http http;
  evconnlistener* listener = nullptr;  // owned by http
  // Other threads wake the loop by this alone: a lock of libevent, held by a loop that does not get
  // to run, would stop the engine.
  int wake_fd = -1;
  int port = 0, open = 0;
  bool draining = false;
  std::vector<Event> signals;
  std::function<void()> on_signal;
  std::mutex mutex;
  std::vector<std::function<void()>> posted;  // guarded by mutex

  ~Impl() {
    wake.reset();
    if (wake_fd >= 0) ::close(wake_fd);
  }
  Status bind();
  void run_posted();
  void exchange_ended() {
    --open;
    if (draining && open == 0) exit_soon();
  }
  // The last answers are in buffers, to be written by the loop.
  void exit_soon() {
    timeval pause = {0, 100000};
    event_base_loopexit(base.get(), &pause);
  }
};

namespace {

class Answer final : public Exchange {
 public:
  Answer(HttpServer::Impl& server, evhttp_request* req) : server_(server), req_(req) {
    ++server_.open;
    connection_ = evhttp_request_get_connection(req);
    bufferevent* bev = evhttp_connection_get_bufferevent(connection_);
    // What the client sends ahead waits in the kernel until this request is answered.
    bufferevent_disable(bev, EV_READ);
    watch(bufferevent_getfd(bev), EV_READ | EV_CLOSED);
    evhttp_connection_set_closecb(connection_, on_closed, this);
    read_request();
  }
  ~Answer() override {
    if (status_ == 0) reply(500, "text/plain", "no answer\n");
    if (req_) drop();  // a stream that never came to its end
  }

  void add_header(const std::string& name, const std::string& value) override {
    if (req_)
      evhttp_add_header(evhttp_request_get_output_headers(req_), name.c_str(), value.c_str());
  }

  void reply(int status, const std::string& content_type, const std::string& body) override {
    if (!req_ || status_ != 0) return;
    status_ = status;
    if (!body.empty()) add_header("Content-Type", content_type);
    Bytes bytes = bytes_of(request_.method == "HEAD" ? "" : body);
    evhttp_request* req = release();
    evhttp_send_reply(req, status, reason_phrase(status), bytes.get());
    ended();
  }

  void start_stream(const std::string& content_type) override {
    if (!req_ || status_ != 0) return;
    status_ = 200;
    add_header("Content-Type", content_type);
    add_header("Cache-Control", "no-cache");
    add_header("X-Accel-Buffering", "no");  // proxies must pass pieces on at once
    evhttp_send_reply_start(req_, 200, reason_phrase(200));
  }

  void send(std::string_view piece) override {
    if (!req_ || piece.empty()) return;
    Bytes bytes = bytes_of(piece);
    evhttp_send_reply_chunk(req_, bytes.get());
    bufferevent* bev = evhttp_connection_get_bufferevent(connection_);
    auto unsent = static_cast<int64_t>(evbuffer_get_length(bufferevent_get_output(bev)));
    if (unsent > server_.options.max_unsent_bytes) drop();
  }

  void finish() override {
    if (!req_) return;
    evhttp_send_reply_end(release());
    ended();
  }

  void on_gone(std::function<void()> callback) override { gone_callback_ = std::move(callback); }
  bool gone() const override { return gone_; }

 private:
  void read_request() {
    request_.method = method_name(evhttp_request_get_command(req_));
    const evhttp_uri* uri = evhttp_request_get_evhttp_uri(req_);
    const char* path = uri ? evhttp_uri_get_path(uri) : nullptr;
    const char* query = uri ? evhttp_uri_get_query(uri) : nullptr;
    request_.path = path ? path : "";
    request_.query = query ? query : "";
    char* peer = nullptr;
    uint16_t port = 0;
    evhttp_connection_get_peer(connection_, &peer, &port);
    request_.peer = peer ? peer : "";
    for (evkeyval* h = evhttp_request_get_input_headers(req_)->tqh_first; h; h = h->next.tqe_next)
      request_.headers.emplace_back(h->key, h->value);
    evbuffer* body = evhttp_request_get_input_buffer(req_);
    request_.body.resize(evbuffer_get_length(body));
    evbuffer_remove(body, request_.body.data(), request_.body.size());
  }

  void watch(evutil_socket_t fd, short what) {
    watch_.reset(event_new(server_.base.get(), fd, what | EV_PERSIST, on_event, this));
    event_add(watch_.get(), nullptr);
  }

  static void on_event(evutil_socket_t fd, short what, void* self) {
    auto* answer = static_cast<Answer*>(self);
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    bool waits = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (n > 0 && !(what & EV_CLOSED)) {
      // The next request: reading must wait, or this event would come again and again.
      answer->watch(fd, EV_CLOSED);
    } else if (!waits) {
      answer->drop();
    }
  }

  // evhttp closes the connection: an error while writing, or a time-out.
  static void on_closed(evhttp_connection*, void* self) {
    auto* answer = static_cast<Answer*>(self);
    // After a network error the request is no longer the connection's, and ours to free; otherwise
    // it goes with the connection.
    evhttp_request* req = answer->req_;
    bool ours = req && !evhttp_request_get_connection(req);
    answer->watch_.reset();
    answer->req_ = nullptr;
    answer->connection_ = nullptr;
    if (ours) evhttp_request_free(req);
    answer->left();
  }

  // The client is gone, or has to go.
  void drop() {
    evhttp_connection* connection = connection_;
    leave();
    if (connection) evhttp_connection_free(connection);  // and the request with it
    left();
  }

  // Neither events nor calls of evhttp reach this object any more.
  void leave() {
    watch_.reset();
    if (connection_) evhttp_connection_set_closecb(connection_, nullptr, nullptr);
    connection_ = nullptr;
    req_ = nullptr;
  }
  evhttp_request* release() {
    evhttp_request* req = req_;
    leave();
    return req;
  }

  void left() {
    if (over_) return;
    gone_ = true;
    status_ = 499;
    auto callback = std::move(gone_callback_);
    ended();
    if (callback) callback();
  }
  void ended() {
    if (over_) return;
    over_ = true;
    gone_callback_ = nullptr;
    auto done = std::move(done_);
    if (done) done(*this);
    server_.exchange_ended();
  }

  HttpServer::Impl& server_;
  evhttp_request* req_;  // null when answered or gone
  evhttp_connection* connection_ = nullptr;
  Event watch_;
  bool gone_ = false, over_ = false;
  std::function<void()> gone_callback_;
};

void on_request(evhttp_request* req, void* server) {
  auto& impl = *static_cast<HttpServer::Impl*>(server);
  auto answer = std::make_shared<Answer>(impl, req);
  impl.handler(std::move(answer));
}

void accept_again(evutil_socket_t, short, void* listener) {
  auto* l = static_cast<evconnlistener*>(listener);
  int listens = 0;
  socklen_t size = sizeof listens;
  getsockopt(evconnlistener_get_fd(l), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
  if (listens) evconnlistener_enable(l);  // not when the server drains
}

// Out of sockets: accepting again at once would fail again at once. The argument is evhttp's.
void on_accept_error(evconnlistener* listener, void*) {
  evconnlistener_disable(listener);
  timeval pause = {0, 200000};
  event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, accept_again, listener,
                  &pause);
}

}  // namespace

void HttpServer::Impl::run_posted() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex);
    tasks.swap(posted);
  }
  for (auto& task : tasks) task();
}

Status HttpServer::Impl::bind() {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  std::string service = std::to_string(options.port);
  const char* host = options.host.empty() ? nullptr : options.host.c_str();
  int code = getaddrinfo(host, service.c_str(), &hints, &found);
  if (code != 0)
    return Error{fmt::format("--host {}: {}; give an address of this machine, 127.0.0.1 or 0.0.0.0",
                             options.host, gai_strerror(code))};
  std::unique_ptr<addrinfo, Deleter<freeaddrinfo>> owner(found);
  listener =
      evconnlistener_new_bind(base.get(), nullptr, nullptr,
                              LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
                              4096, found->ai_addr, static_cast<int>(found->ai_addrlen));
  if (!listener)
    return Error{fmt::format("cannot listen on {} port {}: {}; choose another --port", options.host,
                             options.port, std::strerror(errno))};
  evhttp_bind_listener(http.get(), listener);
  evconnlistener_set_error_cb(listener, on_accept_error);
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(evconnlistener_get_fd(listener), reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
  return {};
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  close();
  impl_->run_posted();
}
void HttpServer::close() { impl_->http.reset(); }

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions& options, Handler handler) {
  signal(SIGPIPE, SIG_IGN);
  raise_file_limit();
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->handler = std::move(handler);
  impl->base.reset(event_base_new());
  HADAL_CHECK(impl->base, "an event loop");
  impl->http.reset(evhttp_new(impl->base.get()));
  evhttp* http = impl->http.get();
  evhttp_set_max_body_size(http, options.max_body_bytes);
  evhttp_set_max_headers_size(http, options.max_header_bytes);
  evhttp_set_timeout(http, options.idle_seconds);
  evhttp_set_flags(http, EVHTTP_SERVER_LINGERING_CLOSE);
  // All of them come to the handler, whose answers have the API's own shape.
  evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD |
                                       EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS |
                                       EVHTTP_REQ_PATCH);
  evhttp_set_gencb(http, on_request, impl.get());
  auto run = [](evutil_socket_t fd, short, void* server) {
    uint64_t count;
    if (read(fd, &count, sizeof count) > 0) static_cast<Impl*>(server)->run_posted();
  };
  impl->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  HADAL_CHECK(impl->wake_fd >= 0, "an event counter");
  impl->wake.reset(
      event_new(impl->base.get(), impl->wake_fd, EV_READ | EV_PERSIST, run, impl.get()));
  event_add(impl->wake.get(), nullptr);
  HADAL_TRY_STATUS(impl->bind());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port; }
bool HttpServer::draining() const { return impl_->draining; }
int HttpServer::open_exchanges() const { return impl_->open; }

void HttpServer::run() {
  event_base_loop(impl_->base.get(), EVLOOP_NO_EXIT_ON_EMPTY);
  impl_->signals.clear();
}

void HttpServer::post(std::function<void()> task) {
  bool first;
  {
    std::lock_guard lock(impl_->mutex);
    first = impl_->posted.empty();
    impl_->posted.push_back(std::move(task));
  }
  const uint64_t one = 1;
  if (first) HADAL_CHECK(write(impl_->wake_fd, &one, sizeof one) == sizeof one, "a wake-up");
}

void HttpServer::drain() {
  if (impl_->draining) return;
  impl_->draining = true;
  // The listener itself stays until the end: accept_again() may be on its way to it.
  evconnlistener_disable(impl_->listener);
  shutdown(evconnlistener_get_fd(impl_->listener), SHUT_RDWR);
  if (impl_->open == 0) impl_->exit_soon();
}

void HttpServer::stop() { event_base_loopbreak(impl_->base.get()); }

void HttpServer::on_signals(const std::vector<int>& signals, std::function<void()> handler) {
  impl_->on_signal = std::move(handler);
  for (int s : signals) {
    auto call = [](evutil_socket_t, short, void* server) {
      static_cast<Impl*>(server)->on_signal();
    };
    impl_->signals.emplace_back(evsignal_new(impl_->base.get(), s, call, impl_.get()));
    event_add(impl_->signals.back().get(), nullptr);
  }
}

std::string HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key.size() == name.size() && strncasecmp(key.data(), name.data(), name.size()) == 0)
      return value;
  return {};
}

const char* reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Request Entity Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 529:
      return "Overloaded";
    default:
      return "Internal Server Error";
  }
}

}  // namespace hadal
