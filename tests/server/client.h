// A small HTTP client, so that tests see the bytes as they come; and the program as a server. `J`
// is the JSON type of whoever includes this.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>

#include "apps/program.h"

namespace hadal {

struct Reply {
  int status = 0;  // 0: the connection ended without one
  std::string head, body;
  template <class J>
  J json() const {
    return J::parse(body, nullptr, false);
  }
  // The header's value, its name as the server writes it.
  std::string header(const std::string& name) const {
    size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    at += name.size() + 4;
    return head.substr(at, head.find("\r\n", at) - at);
  }
  // The data of each frame of an event stream.
  std::vector<std::string> frames() const {
    std::vector<std::string> out;
    for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
      at += 6;
      out.push_back(body.substr(at, body.find("\n\n", at) - at));
    }
    return out;
  }
};

class Connection {
 public:
  explicit Connection(int port) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    timeval limit = {120, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  ~Connection() { close_now(); }
  Connection(const Connection&) = delete;
  Connection(Connection&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), got_(other.got_) {}

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void close_now() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  // False where the server no longer takes it.
  bool send_raw(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      ssize_t n = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  bool send(const std::string& method, const std::string& path, const std::string& body = "",
            const std::string& headers = "") {
    std::string text = method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + headers;
    if (method == "POST") {
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n";
    }
    return send_raw(text + "\r\n" + body);
  }

  // Reads until `text` has come (what was before it stays for receive()); false at the end.
  bool wait_for(const std::string& text) {
    while (got_.find(text) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }

  // One answer, whichever way it says how long it is.
  Reply receive(bool has_body = true) {
    Reply r;
    if (!wait_for("\r\n\r\n")) return r;
    size_t end = got_.find("\r\n\r\n");
    r.head = got_.substr(0, end + 2);
    got_.erase(0, end + 4);
    std::sscanf(r.head.c_str(), "HTTP/1.1 %d", &r.status);
    if (!has_body) return r;
    if (r.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      while (receive_chunk(r.body)) {
      }
      return r;
    }
    size_t length = std::strtoul(r.header("Content-Length").c_str(), nullptr, 10);
    while (got_.size() < length && read_some()) {
    }
    r.body = got_.substr(0, length);
    got_.erase(0, r.body.size());
    return r;
  }

 private:
  bool read_some() {
    char buffer[65536];
    ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    got_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  bool receive_chunk(std::string& body) {
    if (!wait_for("\r\n")) return false;
    size_t size = std::strtoul(got_.c_str(), nullptr, 16);
    got_.erase(0, got_.find("\r\n") + 2);
    while (got_.size() < size + 2)
      if (!read_some()) return false;
    body += got_.substr(0, size);
    got_.erase(0, size + 2);
    return size > 0;
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string got_;
};

class ServerProgram {
 public:
  explicit ServerProgram(std::vector<std::string> flags = {}, const std::string& model = kTinyV4)
      : program_(arguments(std::move(flags), model)) {
    size_t at = program_.wait_for("at http://127.0.0.1:", 0, /*err=*/true);
    program_.wait_for("/v1\n", at, true);
    port_ = std::atoi(program_.error_text().c_str() + at);
  }
  int port() const { return port_; }
  Program& program() { return program_; }

  Reply get(const std::string& path, const std::string& headers = "") const {
    Connection c(port_);
    c.send("GET", path, "", headers);
    return c.receive();
  }
  Reply post(const std::string& path, const std::string& body,
             const std::string& headers = "") const {
    Connection c(port_);
    c.send("POST", path, body, headers);
    return c.receive();
  }
  Reply post(const std::string& path, const char* body) const {
    return post(path, std::string(body));
  }
  template <class J>
  requires requires(const J& j) { j.dump(); }
  Reply post(const std::string& path, const J& body, const std::string& headers = "") const {
    return post(path, body.dump(), headers);
  }
  // The value of a metric without other labels.
  double metric(const std::string& name) const {
    std::string text = get("/metrics").body;
    size_t at = text.find("\n" + name + "{");
    if (at == std::string::npos) return -1;
    at = text.find("} ", at) + 2;
    return std::strtod(text.c_str() + at, nullptr);
  }
  // Waits until nothing runs or waits; false after a minute.
  bool becomes_idle() const {
    for (int i = 0; i < 600; ++i) {
      if (metric("vllm:num_requests_running") == 0 && metric("vllm:num_requests_waiting") == 0)
        return true;
      usleep(100000);
    }
    return false;
  }

 private:
  static std::vector<std::string> arguments(std::vector<std::string> flags,
                                            const std::string& model) {
    std::vector<std::string> all = {"serve",     model,        "--port",
                                    "0",         "--numerics", "exact",
                                    "--threads", "1",          "--disable-log-requests"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  Program program_;
  int port_ = 0;
};

// The first reference of a kind ("chat", "think", "5shot").
struct Reference {
  std::string prompt, output;
  std::vector<int> prompt_ids, output_ids;
};
template <class J>
Reference read_reference(const std::string& kind) {
  std::ifstream file(kTinyV4 + "/greedy_reference.json");
  for (const auto& e : J::parse(file)) {
    if (e["kind"] != kind) continue;
    std::string text = e["output_text"];
    return {e["prompt"], text.substr(0, text.find("<｜end▁of▁sentence｜>")), e["prompt_ids"],
            e["output_ids"]};
  }
  ADD_FAILURE() << kind;
  return {};
}

const std::string kQuestion =
    "Nora is 37 years old. Eli is 13 years older than Nora. How old will Eli be in 10 years?";

// A chat request for kQuestion, greedy, without thinking.
template <class J>
J chat_request(const J& more) {
  J body = {{"model", "tiny-v4"},
            {"messages", J::array({{{"role", "user"}, {"content", kQuestion}}})},
            {"temperature", 0},
            {"chat_template_kwargs", {{"thinking", false}}}};
  body.update(more);
  return body;
}

}  // namespace hadal
