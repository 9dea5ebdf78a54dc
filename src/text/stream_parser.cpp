// The parser is a loop over "find the next marker of this state, hand out the text before it". Text
// at the end of the buffer that may begin a marker waits for more.
#include "text/stream_parser.h"

#include <algorithm>

#include "text/chat_encoders.h"
#include "text/json_text.h"

namespace hadal {
namespace {

using Kind = StreamEvent::Kind;

std::string tag(std::string_view slash, std::string_view name) {
  return "<" + std::string(slash) + std::string(kDsml) + std::string(name);
}

// Each opener also with the blank line that belongs to it.
std::vector<std::string> with_blank_line(const std::vector<std::string>& openers) {
  std::vector<std::string> all;
  for (const std::string& s : openers) {
    all.push_back("\n\n" + s);
    all.push_back(s);
  }
  return all;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

// The text as the inside of a JSON string.
std::string escaped(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

// The value of name="..." in the inside of a tag.
std::string attribute(std::string_view tag, std::string_view name) {
  size_t at = tag.find(std::string(name) + "=\"");
  if (at == tag.npos) return {};
  tag.remove_prefix(at + name.size() + 2);
  return std::string(tag.substr(0, tag.find('"')));
}

// Where a tag ends: the first '>' outside quotes.
size_t tag_end(std::string_view text) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '>' && !quoted) return i;
  }
  return text.npos;
}

// Held back text that is the beginning of markup rather than of words.
bool is_markup(std::string_view held) {
  return held.find(kDsml) != held.npos || trimmed(held).starts_with("<｜");
}

const std::string kInvokeOpen = tag("", "invoke"), kInvokeClose = tag("/", "invoke>");
const std::string kParameterOpen = tag("", "parameter"), kParameterClose = tag("/", "parameter>");

}  // namespace

StreamParser::StreamParser(ChatFormat format, bool in_reasoning, bool tools)
    : dsml_(tools && format >= ChatFormat::kV32),
      v31_(tools && format == ChatFormat::kV31),
      state_(in_reasoning ? State::kReasoning : State::kContent) {
  if (dsml_) {
    // Both releases' names: a model that saw the other's in its prompt may write it.
    openers_ = with_blank_line({tag("", "tool_calls>"), tag("", "function_calls>"), kInvokeOpen});
    closers_ = {tag("/", "tool_calls>"), tag("/", "function_calls>"), kInvokeClose,
                kParameterClose};
  }
  if (v31_) {
    openers_ = with_blank_line({std::string(kCallsBegin), std::string(kCallBegin)});
    closers_ = {std::string(kCallsEnd), std::string(kCallEnd)};
  }
}

void StreamParser::push(std::string_view text, std::vector<StreamEvent>& out) {
  buffer_ += text;
  while (advance(out)) {
  }
  buffer_.erase(0, done_);
  done_ = 0;
}

void StreamParser::finish(std::vector<StreamEvent>& out) {
  bool text = state_ == State::kReasoning || state_ == State::kContent ||
              state_ == State::kString || state_ == State::kBlock || state_ == State::kArguments;
  if (text && !rest().empty() && !is_markup(rest())) {
    std::string held = take(rest().size());
    if (state_ == State::kReasoning) {
      emit(out, Kind::kReasoning, held);
    } else if (state_ == State::kString) {
      emit(out, Kind::kCallArguments, escaped(held));
    } else if (state_ == State::kArguments) {
      emit(out, Kind::kCallArguments, held);
    } else {
      emit(out, Kind::kContent, held);
    }
  }
  if (state_ == State::kInvoke) {
    end_call(out);  // its parameters are whole, only closing tags are missing
  } else if (state_ == State::kParameterTag || state_ == State::kString || state_ == State::kJson ||
             state_ == State::kArguments) {
    emit(out, Kind::kCallEnd, {});
  }
  buffer_.clear();
  state_ = State::kContent;
}

StreamParser::Found StreamParser::find(const std::vector<std::string>& markers) const {
  std::string_view text = rest();
  Found found{text.npos, -1};
  for (size_t i = 0; i < markers.size(); ++i) {
    size_t at = text.find(markers[i]);
    if (at < found.length) found = {at, static_cast<int>(i)};
  }
  if (found.marker >= 0) return found;
  size_t held = 0;
  for (const std::string& m : markers) {
    for (size_t n = std::min(m.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(std::string_view(m).substr(0, n))) held = n;
    }
  }
  return {text.size() - held, -1};
}

std::string StreamParser::take(size_t n) {
  std::string s(rest().substr(0, n));
  done_ += n;
  if (recording_) calls_text_ += s;
  return s;
}

void StreamParser::emit(Events& out, Kind kind, std::string text) {
  if (text.empty() && kind != Kind::kCallBegin && kind != Kind::kCallEnd) return;
  out.push_back({kind, std::move(text)});
}

void StreamParser::begin_call(Events& out, std::string name) {
  ++calls_;
  parameters_ = 0;
  emit(out, Kind::kCallBegin, std::move(name));
}

void StreamParser::end_call(Events& out) {
  if (dsml_) emit(out, Kind::kCallArguments, parameters_ == 0 ? "{}" : "}");
  if (v31_ && parameters_ == 0) emit(out, Kind::kCallArguments, "{}");
  emit(out, Kind::kCallEnd, {});
  state_ = State::kBlock;
  block_text_ = false;
}

// True where something was done and there may be more to do.
bool StreamParser::advance(Events& out) {
  if (rest().empty()) return false;
  if (at_start_ && !start()) return false;
  switch (state_) {
    case State::kReasoning:
      return advance_reasoning(out);
    case State::kContent:
      return advance_content(out);
    case State::kBlock:
      return advance_block(out);
    case State::kInvokeTag:
    case State::kParameterTag:
      return advance_tag(out);
    case State::kInvoke:
    case State::kSkip:
      return advance_invoke(out);
    case State::kString:
      return advance_string(out);
    case State::kJson:
      return advance_json(out);
    case State::kName:
    case State::kArguments:
      return advance_v31_call(out);
  }
  return false;
}

// The marks that count at the very start only. False while there may be one.
bool StreamParser::start() {
  for (std::string_view mark : {kThink, kThinkEnd}) {
    bool counts = mark == kThink || state_ == State::kContent;
    if (!counts) continue;
    if (rest().starts_with(mark)) {
      take(mark.size());
      if (mark == kThink) state_ = State::kReasoning;
      at_start_ = false;
      return true;
    }
    if (mark.starts_with(rest())) return false;
  }
  at_start_ = false;
  return true;
}

void StreamParser::open_block(const std::string& marker) {
  recording_ = true;
  take(marker.size());
  block_text_ = false;
  state_ = State::kBlock;
  if (dsml_ && marker.ends_with(kInvokeOpen)) state_ = State::kInvokeTag;
  if (v31_ && marker.ends_with(kCallBegin)) state_ = State::kName;
}

bool StreamParser::advance_reasoning(Events& out) {
  std::vector<std::string> markers = {std::string(kThinkEnd)};
  markers.insert(markers.end(), openers_.begin(), openers_.end());
  Found found = find(markers);
  emit(out, Kind::kReasoning, take(found.length));
  if (found.marker < 0) return false;
  if (found.marker == 0) {
    take(kThinkEnd.size());
    state_ = State::kContent;
  } else {
    open_block(markers[found.marker]);
  }
  return true;
}

bool StreamParser::advance_content(Events& out) {
  std::vector<std::string> markers = openers_;
  markers.insert(markers.end(), closers_.begin(), closers_.end());
  Found found = find(markers);
  emit(out, Kind::kContent, take(found.length));
  if (found.marker < 0) return false;
  if (found.marker < static_cast<int>(openers_.size())) {
    open_block(markers[found.marker]);
  } else {
    take(markers[found.marker].size());
  }
  return true;
}

bool StreamParser::advance_block(Events& out) {
  while (!block_text_ && !rest().empty() && is_space(rest().front())) take(1);
  std::vector<std::string> markers = openers_;
  markers.insert(markers.end(), closers_.begin(), closers_.end());
  Found found = find(markers);
  if (found.length > 0) {
    block_text_ = true;
    emit(out, Kind::kContent, take(found.length));
  }
  if (found.marker < 0) return false;
  const std::string& marker = markers[found.marker];
  if (found.marker < static_cast<int>(openers_.size())) {
    open_block(marker);
    return true;
  }
  take(marker.size());
  block_text_ = false;
  bool ends = v31_ ? marker == kCallsEnd : marker != kInvokeClose && marker != kParameterClose;
  if (ends) {
    state_ = State::kContent;
    recording_ = false;
  }
  return true;
}

bool StreamParser::advance_tag(Events& out) {
  size_t end = tag_end(rest());
  if (end == std::string::npos) return false;
  std::string inside = take(end);
  take(1);
  std::string name = attribute(inside, "name");
  if (state_ == State::kInvokeTag) {
    state_ = name.empty() ? State::kSkip : State::kInvoke;
    if (!name.empty()) begin_call(out, name);
    return true;
  }
  state_ = attribute(inside, "string") == "false" ? State::kJson : State::kString;
  std::string head = parameters_++ == 0 ? "{\"" : ", \"";
  head += escaped(name) + "\": ";
  if (state_ == State::kString) head += '"';
  emit(out, Kind::kCallArguments, head);
  return true;
}

bool StreamParser::advance_invoke(Events& out) {
  std::vector<std::string> markers = {kParameterOpen, kParameterClose, kInvokeClose,
                                      kInvokeOpen,    closers_[0],     closers_[1]};
  Found found = find(markers);
  take(found.length);
  if (found.marker < 0) return false;
  if (found.marker == 0 && state_ == State::kInvoke) {
    take(kParameterOpen.size());
    state_ = State::kParameterTag;
  } else if (found.marker <= 1) {
    take(markers[found.marker].size());
  } else {
    if (found.marker == 2) take(kInvokeClose.size());
    if (state_ == State::kInvoke) end_call(out);
    state_ = State::kBlock;
  }
  return true;
}

bool StreamParser::advance_string(Events& out) {
  std::vector<std::string> markers = {kParameterClose, kInvokeClose, closers_[0], closers_[1]};
  Found found = find(markers);
  emit(out, Kind::kCallArguments, escaped(take(found.length)));
  if (found.marker < 0) return false;
  if (found.marker == 0) take(kParameterClose.size());
  emit(out, Kind::kCallArguments, "\"");
  state_ = State::kInvoke;
  return true;
}

bool StreamParser::advance_json(Events& out) {
  std::vector<std::string> markers = {kParameterClose, kInvokeClose, closers_[0], closers_[1]};
  Found found = find(markers);
  if (found.marker < 0) return false;
  std::string text = take(found.length);
  if (found.marker == 0) take(kParameterClose.size());
  std::string value(trimmed(text));
  if (value.empty()) {
    value = "null";
  } else if (!parse_json(value, "value").ok()) {
    value = '"' + escaped(text) + '"';
  }
  emit(out, Kind::kCallArguments, value);
  state_ = State::kInvoke;
  return true;
}

bool StreamParser::advance_v31_call(Events& out) {
  if (state_ == State::kName) {
    Found found = find({std::string(kSep)});
    if (found.marker < 0) return false;
    std::string name(trimmed(take(found.length)));
    take(kSep.size());
    begin_call(out, name);
    state_ = State::kArguments;
    return true;
  }
  std::vector<std::string> markers = {std::string(kCallEnd), std::string(kCallsEnd),
                                      std::string(kCallBegin)};
  Found found = find(markers);
  std::string text = take(found.length);
  if (!text.empty()) parameters_ = 1;
  emit(out, Kind::kCallArguments, text);
  if (found.marker < 0) return false;
  if (found.marker == 0) take(kCallEnd.size());
  end_call(out);
  return true;
}

}  // namespace hadal
