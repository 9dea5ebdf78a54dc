// libFuzzer target: any bytes as a model's answer, whole and in pieces. Nothing may crash, the
// events may not depend on the pieces, and calls begin and end in turn.
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "text/stream_parser.h"

namespace {

using namespace hadal;
using Kind = StreamEvent::Kind;

std::vector<StreamEvent> parse(const StreamParser& fresh, std::string_view text, size_t width) {
  StreamParser parser = fresh;
  std::vector<StreamEvent> events, joined;
  for (; text.size() > width; text.remove_prefix(width)) parser.push(text.substr(0, width), events);
  parser.push(text, events);
  parser.finish(events);
  bool in_call = false;
  for (const StreamEvent& e : events) {
    bool text_event = e.kind != Kind::kCallBegin && e.kind != Kind::kCallEnd;
    HADAL_CHECK(!text_event || !e.text.empty(), "an empty piece");
    HADAL_CHECK(in_call == (e.kind == Kind::kCallArguments || e.kind == Kind::kCallEnd),
                "calls begin and end in turn");
    if (!text_event) in_call = e.kind == Kind::kCallBegin;
    if (text_event && !joined.empty() && joined.back().kind == e.kind) {
      joined.back().text += e.text;
    } else {
      joined.push_back(e);
    }
  }
  HADAL_CHECK(!in_call, "a call that never ends");
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  constexpr ChatFormat kFormats[] = {ChatFormat::kV3, ChatFormat::kV31, ChatFormat::kV32,
                                     ChatFormat::kV4Preview};
  StreamParser fresh(kFormats[data[0] & 3], (data[0] & 4) != 0, (data[0] & 8) != 0);
  auto whole = parse(fresh, text, text.size() + 1);
  HADAL_CHECK(parse(fresh, text, 1 + data[1] % 16) == whole, "the pieces change the events");
  return 0;
}
