// What the verbs that run a model share: its options, and loading it with a progress bar.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flags.h"
#include "hadal.h"
#include "text/tokenizer.h"

namespace hadal {

struct ModelOptions {
  std::string model;  // folder
  DummyModel dummy;   // random weights instead of a folder, where its config is set
  std::string device = "cpu";
  std::string numerics = "release";
  int threads = 0;
  int64_t max_model_len = 0;
  bool enforce_eager = false;
  std::vector<std::string> without;

  void declare(Flags& flags);  // all options but MODEL
};

// The engine for `options`. step_tokens: of one step (0 = as the engine chooses).
Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options, int sessions,
                                            int64_t step_tokens);

// Error when a name of --without is no kernel's: it would leave out nothing.
Status check_without(const std::vector<std::string>& without);

// The tokenizer in the checkpoint's folder; the error says when there is none.
Result<Tokenizer> open_tokenizer(const std::string& model);

// The content of a file, or of standard input for "-".
Result<std::string> read_text(const std::string& path);

}  // namespace hadal
