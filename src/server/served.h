// The model as the endpoints see it: what is loaded, under which names, with which defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/serve_loop.h"
#include "hadal.h"
#include "server/http.h"
#include "server/metrics.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/tool_replay.h"

namespace hadal {

struct ServedOptions {
  std::vector<std::string> names;  // public names of the model, at least one; the first is echoed
  bool any_name = false;           // answer to every model name
  std::vector<std::string> api_keys;
  SamplingParams sampling;  // where a request says nothing; seed and max_tokens do not count
  ChatOptions chat;         // format, and whether to think where a request does not say
  std::string no_chat;      // not empty: why there is no chat, a sentence
  bool log_requests = true;
  std::string version;
};

struct Served {
  ServedOptions options;
  const Tokenizer& tokenizer;
  PromptStrings strings;
  ModelInfo model;
  ServeLoop* loop = nullptr;
  HttpServer* http = nullptr;
  Metrics metrics;
  int64_t created = 0;  // seconds since 1970
  bool warned = false;  // of PromptStrings::warning
  ToolReplay replay{64 << 20};

  bool serves(const std::string& name) const;
};

}  // namespace hadal
