// Load on a running `hadal serve`, and the same work on the bare engine to compare with:
//   serve_load URL-PORT CONCURRENCY REQUESTS [PROMPT_TOKENS OUTPUT_TOKENS]
//   serve_load engine:MODEL CONCURRENCY REQUESTS [PROMPT_TOKENS OUTPUT_TOKENS]
// Streams of /v1/completions with prompts of token ids; a thread per connection, each with one
// request after the other. Prints one line of figures; times in milliseconds.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/sampler.h"
#include "hadal.h"

namespace {

using namespace hadal;
using Clock = std::chrono::steady_clock;

struct Work {
  std::string target;
  int concurrency = 1, requests = 1, prompt = 64, output = 64;
};

double ms(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

double percentile(std::vector<double> v, double p) {
  if (v.empty()) return 0;
  std::ranges::sort(v);
  return v[static_cast<size_t>(p / 100 * static_cast<double>(v.size() - 1) + 0.5)];
}

// Different for each request, or all of them would come from one kept session.
int prompt_id(int request, int position) { return 20 + (request * 131 + position * 7) % 700; }

struct Results {
  std::mutex mutex;
  std::vector<double> first, per_token;
  int64_t tokens = 0, failed = 0;
};

int connect_to(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

std::string request_text(const Work& w, int request) {
  std::string ids;
  for (int i = 0; i < w.prompt; ++i) {
    if (i > 0) ids += ',';
    ids += std::to_string(prompt_id(request, i));
  }
  std::string body = fmt::format(
      R"({{"prompt":[{}],"max_tokens":{},"ignore_eos":true,"temperature":0,"stream":true}})", ids,
      w.output);
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

// One stream. False where it did not come to its end.
bool one(int fd, const Work& w, int request, Results& results) {
  std::string text = request_text(w, request), got;
  auto start = Clock::now(), first = start, last = start;
  if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
    return false;
  char buffer[65536];
  while (got.find("\r\n0\r\n\r\n") == std::string::npos) {
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    got.append(buffer, static_cast<size_t>(n));
    last = Clock::now();
    if (first == start && got.find("data: ") != std::string::npos) first = last;
  }
  if (got.find("data: [DONE]") == std::string::npos) return false;
  std::lock_guard lock(results.mutex);
  results.first.push_back(ms(start, first));
  results.per_token.push_back(ms(first, last) / (w.output - 1));
  results.tokens += w.output;
  return true;
}

int load_server(const Work& w) {
  Results results;
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  int port = std::atoi(w.target.c_str());
  auto start = Clock::now();
  for (int t = 0; t < w.concurrency; ++t) {
    threads.emplace_back([&] {
      int fd = connect_to(port);
      for (int request; (request = next++) < w.requests;) {
        if (fd >= 0 && one(fd, w, request, results)) continue;
        std::lock_guard lock(results.mutex);
        ++results.failed;
      }
      if (fd >= 0) close(fd);
    });
  }
  for (auto& t : threads) t.join();
  double seconds = ms(start, Clock::now()) / 1000;
  fmt::print(
      "server concurrency {} requests {} failed {}: {:.1f} requests/s {:.0f} tokens/s "
      "TTFT p50 {:.1f} p99 {:.1f} TPOT p50 {:.2f} p99 {:.2f}\n",
      w.concurrency, w.requests, results.failed, results.first.size() / seconds,
      results.tokens / seconds, percentile(results.first, 50), percentile(results.first, 99),
      percentile(results.per_token, 50), percentile(results.per_token, 99));
  return results.failed ? 1 : 0;
}

// Batches of `concurrency` sequences: their prompts in steps of up to 512 tokens, then their
// tokens.
int load_engine(const Work& w) {
  EngineOptions options;
  options.max_sessions = w.concurrency;
  auto opened = Engine::open(w.target.substr(7), options);
  if (!opened.ok()) {
    fmt::print(stderr, "{}\n", opened.error().message);
    return 1;
  }
  Engine& engine = *opened.value();
  auto vocab = static_cast<size_t>(engine.info().vocab);
  SamplingParams greedy;
  greedy.temperature = 0;
  std::vector<float> logits;
  auto start = Clock::now();
  int done = 0;
  for (; done < w.requests; done += w.concurrency) {
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Sampler> samplers;
    std::vector<int32_t> last(w.concurrency);
    std::vector<std::vector<int32_t>> prompts(w.concurrency);
    for (int i = 0; i < w.concurrency; ++i) {
      sessions.push_back(engine.open_session().value());
      for (int k = 0; k < w.prompt; ++k) prompts[i].push_back(prompt_id(done + i, k));
      samplers.emplace_back(greedy, engine.info().vocab, prompts[i]);
    }
    int at_once = std::max(1, 512 / w.prompt);
    for (int from = 0; from < w.concurrency; from += at_once) {
      std::vector<StepInput> inputs;
      for (int i = from; i < std::min(w.concurrency, from + at_once); ++i)
        inputs.push_back({sessions[i].get(), prompts[i]});
      if (!engine.step(inputs, logits).ok()) return 1;
      for (size_t r = 0; r < inputs.size(); ++r)
        last[from + r] =
            samplers[from + r].sample(std::span(logits).subspan(r * vocab, vocab)).value().id;
    }
    for (int k = 1; k < w.output; ++k) {
      std::vector<StepInput> inputs;
      for (int i = 0; i < w.concurrency; ++i) inputs.push_back({sessions[i].get(), {&last[i], 1}});
      if (!engine.step(inputs, logits).ok()) return 1;
      for (int i = 0; i < w.concurrency; ++i)
        last[i] = samplers[i].sample(std::span(logits).subspan(i * vocab, vocab)).value().id;
    }
  }
  double seconds = ms(start, Clock::now()) / 1000;
  fmt::print("engine concurrency {} requests {}: {:.1f} requests/s {:.0f} tokens/s\n",
             w.concurrency, done, done / seconds, static_cast<double>(done) * w.output / seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) {
    fmt::print(stderr, "serve_load PORT|engine:MODEL CONCURRENCY REQUESTS [PROMPT OUTPUT]\n");
    return 2;
  }
  Work w{argv[1], std::atoi(argv[2]), std::atoi(argv[3])};
  if (argc == 6) {
    w.prompt = std::atoi(argv[4]);
    w.output = std::atoi(argv[5]);
  }
  if (w.concurrency < 1 || w.requests < 1 || w.prompt < 1 || w.prompt > 512 || w.output < 2)
    return 2;
  return w.target.starts_with("engine:") ? load_engine(w) : load_server(w);
}
