// From a request to its endpoint.
#include "server/server.h"

#include <fmt/format.h>
#include <signal.h>

#include "base/log.h"
#include "server/anthropic.h"
#include "server/openai.h"
#include "server/openai_shapes.h"

namespace hadal {
namespace {

constexpr const char* kJson = "application/json";
constexpr const char* kText = "text/plain; version=0.0.4; charset=utf-8";

using JsonEndpoint = void (*)(Served&, std::shared_ptr<Exchange>, const JsonValue&);

struct PostRoute {
  const char* path;
  JsonEndpoint endpoint;
};

constexpr PostRoute kPosts[] = {
    {"/v1/chat/completions", chat_completions},
    {"/v1/completions", completions},
    {"/v1/messages", messages},
    {"/v1/messages/count_tokens", count_tokens},
    {"/tokenize",
     [](Served& s, std::shared_ptr<Exchange> e, const JsonValue& b) { tokenize(s, *e, b); }},
    {"/detokenize",
     [](Served& s, std::shared_ptr<Exchange> e, const JsonValue& b) { detokenize(s, *e, b); }},
};

Dialect dialect_of(const HttpRequest& request) {
  return request.path.starts_with("/v1/messages") ? Dialect::kAnthropic : Dialect::kOpenAI;
}

// As long as both texts, so that the time tells nothing of where they differ.
bool same_key(const std::string& a, const std::string& b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0;
}

}  // namespace

struct Server::Impl {
  ServerOptions options;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<ServeLoop> loop;
  std::unique_ptr<Served> served;
  bool stopped_early = false;

  ~Impl() {
    // Clients hear the end first, then the engine lets go of their requests, and what it posted
    // then is run by the last one to go.
    if (http) http->close();
    loop.reset();
    http.reset();
  }

  void handle(std::shared_ptr<Exchange> exchange);
  void get(Exchange& exchange);
  void post(std::shared_ptr<Exchange> exchange);
  bool allowed(const HttpRequest& request) const;
  void prepare(Exchange& exchange);
  void on_signal();
};

void Server::Impl::prepare(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  std::string id = request.header("x-request-id");
  if (id.empty() || id.size() > 200) id = random_id("req-");
  exchange.add_header("X-Request-Id", id);
  exchange.add_header("Access-Control-Allow-Origin", "*");
  exchange.add_header("Access-Control-Expose-Headers", "X-Request-Id");
  if (http->draining()) exchange.add_header("Connection", "close");
  if (!served->options.log_requests || !request.path.starts_with("/v1/")) return;
  auto start = Clock::now();
  exchange.on_done([id, start](Exchange& e) {
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    log_info(fmt::format("{} {} {} {} {:.3f} s {}", e.request().peer, e.request().method,
                         e.request().path, e.status(), seconds, id));
  });
}

bool Server::Impl::allowed(const HttpRequest& request) const {
  const auto& keys = served->options.api_keys;
  if (keys.empty() || !request.path.starts_with("/v1")) return true;
  std::string key = request.header("x-api-key"), bearer = request.header("authorization");
  if (bearer.size() > 7 && (bearer.starts_with("Bearer ") || bearer.starts_with("bearer ")))
    key = bearer.substr(7);
  bool found = false;
  for (const std::string& k : keys) found |= same_key(key, k);
  return found;
}

void Server::Impl::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  prepare(*exchange);
  if (request.method == "OPTIONS") {
    exchange->add_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    std::string headers = request.header("access-control-request-headers");
    exchange->add_header("Access-Control-Allow-Headers", headers.empty() ? "*" : headers);
    exchange->add_header("Access-Control-Max-Age", "600");
    return exchange->reply(204, kText, "");
  }
  auto fail = [&](ApiError error) { reply_error(*exchange, error, dialect_of(request)); };
  if (!allowed(request)) {
    exchange->add_header("WWW-Authenticate", "Bearer");
    return fail({401,
                 "the API key is missing or wrong: send it as \"Authorization: Bearer KEY\" "
                 "or \"x-api-key: KEY\"."});
  }
  if (http->draining() && request.method == "POST") {
    exchange->add_header("Retry-After", "5");
    return fail({503, "the server is shutting down."});
  }
  for (const PostRoute& route : kPosts) {
    if (request.path != route.path) continue;
    if (request.method == "POST") return post(std::move(exchange));
    exchange->add_header("Allow", "POST, OPTIONS");
    return fail({405, fmt::format("{} takes POST only.", request.path)});
  }
  if (request.method == "GET" || request.method == "HEAD") return get(*exchange);
  fail({404, fmt::format("there is no {} {}.", request.method, request.path)});
}

void Server::Impl::get(Exchange& exchange) {
  const std::string& path = exchange.request().path;
  if (path == "/health" || path == "/ping")
    return exchange.reply(loop->healthy() && !http->draining() ? 200 : 503, kText, "");
  if (path == "/metrics") return exchange.reply(200, kText, served->metrics.text(loop->stats()));
  if (path == "/version") return exchange.reply(200, kJson, version_body(served->options.version));
  if (path == "/tokenizer_info") return exchange.reply(200, kJson, tokenizer_info_body(*served));
  if (path == "/v1/models") return exchange.reply(200, kJson, model_list(*served));
  const std::string prefix = "/v1/models/";
  if (path.starts_with(prefix)) {
    std::string name = path.substr(prefix.size());
    if (served->serves(name)) return exchange.reply(200, kJson, model_card(*served, name));
    return reply_error(
        exchange,
        {404, fmt::format("The model `{}` does not exist.", name), "model", "model_not_found"},
        Dialect::kOpenAI);
  }
  reply_error(exchange, {404, fmt::format("there is no GET {}.", path)}, Dialect::kOpenAI);
}

void Server::Impl::post(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  Dialect dialect = dialect_of(request);
  std::string type = request.header("content-type");
  if (!type.empty() && !type.starts_with(kJson)) {
    ApiError error{415, fmt::format("the content type is {}: send {}.", type, kJson)};
    return reply_error(*exchange, error, dialect);
  }
  auto body = parse_json(request.body, "the request's body");
  if (!body.ok()) return reply_error(*exchange, {400, body.error().message}, dialect);
  if (body.value().kind != JsonValue::Kind::kObject) {
    ApiError error{400, "the request's body must be a JSON object."};
    return reply_error(*exchange, error, dialect);
  }
  for (const PostRoute& route : kPosts) {
    if (request.path == route.path) return route.endpoint(*served, exchange, body.value());
  }
}

void Server::Impl::on_signal() {
  if (http->draining()) {
    stopped_early = true;
    return http->stop();
  }
  int open = http->open_exchanges();
  http->drain();
  log_info(open ? fmt::format("ending after {} running requests; again to stop at once", open)
                : std::string("ending"));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->http->port(); }

Result<std::unique_ptr<Server>> Server::open(const ServerOptions& options, Engine& engine,
                                             const Tokenizer& tokenizer, PromptStrings strings) {
  auto impl = std::make_unique<Impl>();
  Impl* self = impl.get();
  impl->options = options;
  HADAL_TRY(impl->http, HttpServer::open(options.http, [self](std::shared_ptr<Exchange> exchange) {
              self->handle(std::move(exchange));
            }));
  impl->loop = std::make_unique<ServeLoop>(engine, options.limits, options.reuse_prefixes);
  impl->served.reset(new Served{options.served, tokenizer, std::move(strings), engine.info(),
                                impl->loop.get(), impl->http.get(),
                                Metrics(options.served.names.front()), now_seconds()});
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

bool Server::run() {
  impl_->http->on_signals({SIGINT, SIGTERM}, [this] { impl_->on_signal(); });
  impl_->http->run();
  return !impl_->stopped_early;
}

}  // namespace hadal
