// libFuzzer target: any bytes as the body of a request, read by every endpoint up to the point
// where the engine would take it. Each must answer once: with a prompt's tokens or with an error in
// its API's shape.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/anthropic.h"
#include "server/chat_request.h"
#include "server/openai.h"

namespace {

using namespace hadal;

// 256 byte tokens and the marks of all formats.
std::string tokenizer_file() {
  std::string vocab, added;
  int next = 256, id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    int c = itself ? byte : next++;
    std::string spelled;
    if (c < 0x80) {
      if (c == '"' || c == '\\') spelled += '\\';
      spelled += static_cast<char>(c);
    } else {
      spelled = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    }
    vocab += (id ? ",\"" : "\"") + spelled + "\":" + std::to_string(id);
    ++id;
  }
  for (const char* mark : {"<｜begin▁of▁sentence｜>", "<think>", "</think>", "｜DSML｜"})
    added += (added.empty() ? "" : ",") + (R"({"id":)" + std::to_string(id++)) + R"(,"content":")" +
             mark + R"(","special":true,"normalized":false})";
  return R"({"added_tokens":[)" + added +
         R"(],"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
         R"({"type":"Split","pattern":{"Regex":"\\s+|\\S+"},"behavior":"Isolated"},)"
         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
         R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

class Recorder : public Exchange {
 public:
  void add_header(const std::string&, const std::string&) override {}
  void reply(int status, const std::string&, const std::string& body) override {
    HADAL_CHECK(status_ == 0, "a second answer");
    HADAL_CHECK(status == 200 || (status >= 400 && status < 500),
                "a status of the client's making");
    HADAL_CHECK(parse_json(body, "the answer").ok(), "an answer in JSON");
    status_ = status;
  }
  void start_stream(const std::string&) override {}
  void send(std::string_view) override {}
  void finish() override {}
  void on_gone(std::function<void()>) override {}
  bool gone() const override { return false; }
};

struct Model {
  Tokenizer tokenizer = make_tokenizer();
  Served served{options(),    tokenizer, own_prompt_strings(ChatFormat::kV4_0731),
                info(),       nullptr,   nullptr,
                Metrics("m"), 0};

  Model() { served.warned = true; }

  static Tokenizer make_tokenizer() {
    auto tokenizer = Tokenizer::parse(tokenizer_file(), "tokenizer.json");
    HADAL_CHECK(tokenizer.ok(), tokenizer.ok() ? "" : tokenizer.error().message);
    return std::move(tokenizer).value();
  }
  static ServedOptions options() {
    ServedOptions o;
    o.names = {"m"};
    return o;
  }
  static ModelInfo info() {
    ModelInfo m;
    m.vocab = 260;
    m.max_context = 4096;
    m.bos_id = 256;
    m.eos_ids = {1};
    return m;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Model model;
  if (size < 1) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto body = parse_json(bytes, "the body");
  if (!body.ok() || body.value().kind != JsonValue::Kind::kObject) return 0;
  constexpr ChatFormat kFormats[] = {ChatFormat::kV3,        ChatFormat::kR1,
                                     ChatFormat::kV31,       ChatFormat::kV32,
                                     ChatFormat::kV4Preview, ChatFormat::kV4_0731};
  model.served.options.chat.format = kFormats[data[0] % 6];
  model.served.options.chat.thinking = (data[0] & 64) != 0;

  auto recorder = std::make_shared<Recorder>();
  count_tokens(model.served, recorder, body.value());
  HADAL_CHECK(recorder->status() != 0, "an answer");
  Recorder tokens, text;
  tokenize(model.served, tokens, body.value());
  detokenize(model.served, text, body.value());
  HADAL_CHECK(tokens.status() != 0 && text.status() != 0, "an answer");

  // What the generating endpoints would hand to the engine.
  Fields fields(body.value());
  ChatRequest request = read_chat_request(fields, body.value());
  Ask ask = read_generation(fields, model.served);
  if (!fields.error()) encode_chat_request(fields, model.served, request, &ask);
  if (fields.error()) return 0;
  const ServeRequest& r = ask.request;
  HADAL_CHECK(check_sampling(r.sampling, 260).ok(), "parameters that the sampler takes");
  HADAL_CHECK(!r.prompt.empty() && r.prompt.size() + r.sampling.max_tokens <= 4096, "room");
  for (const TokenBias& b : r.logit_bias) HADAL_CHECK(b.id >= 0 && b.id < 260, "an id");
  return 0;
}
