// What the model writes, as it writes it, to events: reasoning, content, tool calls. The same code
// serves streamed and whole answers; the events depend on the text alone, never on where it was cut
// (but for how many pieces a run of text comes in). Formats: specs V3.2 8.3 and 8.4, V4 8.2.
//
// Text is kept as it is: no white space is trimmed but the blank line in front of a tool block,
// which belongs to the block. Markup never reaches content or arguments, whole or in part; what is
// broken is read as well as it can be:
// - a second <think> at the start of reasoning and a </think> at the start of content are dropped;
// - <think> at the start of content opens reasoning (R1 without an opener in the prompt);
// - a tool block ends reasoning that was not closed;
// - calls outside a block count, closing tags without an opening one are dropped, an empty block is
//   nothing, text between calls is content;
// - a parameter that says string="false" and holds no JSON becomes a string.
// Bars other than U+FF5C make no markup: such text stays content.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format.h"

namespace hadal {

struct StreamEvent {
  enum class Kind { kReasoning, kContent, kCallBegin, kCallArguments, kCallEnd };
  Kind kind;
  std::string text;  // a piece, never empty; kCallBegin: the function's name; kCallEnd: empty
  bool operator==(const StreamEvent&) const = default;
};

class StreamParser {
 public:
  // `in_reasoning`: the prompt ended inside <think> (Prompt::opens_reasoning). `tools`: calls may
  // come; without it their markup is plain text. V3 and R1 have no tools.
  StreamParser(ChatFormat format, bool in_reasoning, bool tools);

  // Text with the special tokens of the format spelled out. Appends the events to `out`.
  void push(std::string_view text, std::vector<StreamEvent>& out);
  // The end of the answer. A call that was cut ends with the arguments that were there.
  void finish(std::vector<StreamEvent>& out);

  bool in_reasoning() const { return state_ == State::kReasoning; }
  int calls() const { return calls_; }
  // The model's own bytes from the first call's block (its blank line included) to the end of the
  // last one: what Message::tool_calls_text takes.
  const std::string& calls_text() const { return calls_text_; }

 private:
  enum class State {
    kReasoning,
    kContent,
    kBlock,      // between calls
    kInvokeTag,  // behind "<|DSML|invoke"
    kInvoke,     // between parameters
    kSkip,       // a call without a name
    kParameterTag,
    kString,
    kJson,
    kName,       // V3.1: behind the token that begins a call
    kArguments,  // V3.1
  };
  using Events = std::vector<StreamEvent>;

  bool advance(Events& out);
  bool start();
  bool advance_reasoning(Events& out);
  bool advance_content(Events& out);
  bool advance_block(Events& out);
  bool advance_tag(Events& out);
  bool advance_invoke(Events& out);
  bool advance_string(Events& out);
  bool advance_json(Events& out);
  bool advance_v31_call(Events& out);

  // The text before the first of `markers`, and which one it is; -1 where there is none: then the
  // text that can be no part of one.
  struct Found {
    size_t length;
    int marker;
  };
  Found find(const std::vector<std::string>& markers) const;
  std::string_view rest() const { return std::string_view(buffer_).substr(done_); }
  std::string take(size_t n);
  void emit(Events& out, StreamEvent::Kind kind, std::string text);
  void begin_call(Events& out, std::string name);
  void end_call(Events& out);
  void open_block(const std::string& marker);

  bool dsml_, v31_;
  State state_;
  bool at_start_ = true;
  bool recording_ = false;   // bytes that are taken belong to calls_text_
  bool block_text_ = false;  // text other than white space since the last tag of the block
  int calls_ = 0;
  int parameters_ = 0;  // of the call, so far; V3.1: bytes of arguments
  std::string buffer_;  // what was pushed and not taken is at done_
  size_t done_ = 0;
  std::string calls_text_;
  std::vector<std::string> openers_, closers_;
};

}  // namespace hadal
