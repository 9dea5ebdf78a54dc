// `hadal plan MODEL`: whether a model fits some devices, before anything is loaded.
#include "engine/plan.h"

#include <fmt/format.h>

#include "model/inspect.h"
#include "verbs.h"

namespace hadal {
namespace {

class PlanVerb : public Verb {
 public:
  std::string name() const override { return "plan"; }
  std::string about() const override {
    return "Print the memory that a model needs on 1, 2, 4 and 8 devices, and whether it fits";
  }

  void declare(Flags& flags) override {
    flags.argument("MODEL", model_, "Folder of a checkpoint, or a config.json");
    flags.option("--devices", devices_, "Devices to judge by: 1, 2, 4 or 8");
    flags.option("--memory", memory_, "Memory of each device, such as 141G or 80GiB");
    flags.require("--memory");
    flags.option("--context", context_, "Tokens of each sequence (not given: the model's most)");
    flags.option("--batch", batch_, "Sequences at once");
    flags.flag("--json", json_, "Print JSON");
  }

  Result<int> run() override {
    HADAL_TRY(int64_t memory, parse_memory(memory_));
    HADAL_TRY(ModelReport report, inspect_model(model_));
    int64_t context = context_.value_or(report.config.max_context);
    HADAL_TRY(Plan plan, make_plan(report.config, devices_, memory, context, batch_));
    std::string text = json_ ? to_json(plan) : to_text(plan);
    fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
    return 0;
  }

 private:
  std::string model_, memory_;
  int devices_ = 1;
  std::optional<int64_t> context_;
  int64_t batch_ = 1;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> plan_verb() { return std::make_unique<PlanVerb>(); }

}  // namespace hadal
