// The server: routes, keys, cross-origin headers, request ids and the request log, around one
// model.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/served.h"

namespace hadal {

struct ServerOptions {
  HttpOptions http;
  ServedOptions served;
  SchedulerLimits limits;  // as the engine was opened for
  bool reuse_prefixes = true;
};

class Server {
 public:
  // All of these must outlive the server. Error: the port cannot be bound.
  static Result<std::unique_ptr<Server>> open(const ServerOptions& options, Engine& engine,
                                              const Tokenizer& tokenizer, PromptStrings strings);
  ~Server();

  int port() const;
  // Serves until a SIGINT or SIGTERM, which lets running requests end; a second one stops at once.
  // True where all requests came to their end.
  bool run();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hadal
