// `hadal inspect MODEL`: what a checkpoint is, from its headers.
#include "model/inspect.h"

#include <fmt/format.h>

#include "verbs.h"

namespace hadal {
namespace {

class InspectVerb : public Verb {
 public:
  std::string name() const override { return "inspect"; }
  std::string about() const override {
    return "Print what a checkpoint is: layers, parameters, bytes, caches";
  }

  void declare(Flags& flags) override {
    flags.argument("MODEL", model_,
                   "Folder of a checkpoint, whose shards need not all be there, or a config.json");
    flags.flag("--tensors", tensors_, "List every tensor");
    flags.flag("--json", json_, "Print JSON");
  }

  Result<int> run() override {
    HADAL_TRY(ModelReport report, inspect_model(model_));
    std::string text = json_ ? to_json(report, tensors_) : to_text(report, tensors_);
    fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
    return 0;
  }

 private:
  std::string model_;
  bool tensors_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> inspect_verb() { return std::make_unique<InspectVerb>(); }

}  // namespace hadal
