// libFuzzer target: any bytes as a config.json. What the parser accepts must be consistent enough
// for the inventory, the report and the plan.
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/plan.h"
#include "model/inspect.h"
#include "model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hadal;
  std::string text(reinterpret_cast<const char*>(data), size);
  auto config = parse_config(text, "input");
  if (!config.ok()) {
    HADAL_CHECK(config.error().message.starts_with("input: "), config.error().message);
    return 0;
  }
  const Config& c = config.value();
  // A legal config may have millions of tensors; listing them again and again teaches nothing.
  if ((c.layers + c.draft_layers) * c.experts > 2000) return 0;
  for (const TensorSpec& spec : expected_tensors(c)) {
    for (int64_t d : spec.shape) HADAL_CHECK(d > 0, spec.name);
  }
  ModelReport report = inspect_model(c, nullptr, "input");
  HADAL_CHECK(report.parameters > 0 && report.active_parameters > 0, "parameters");
  HADAL_CHECK(report.active_parameters <= report.parameters && report.expected_bytes > 0, "bytes");
  to_text(report, true);
  to_json(report, true);
  auto plan = make_plan(c, 4, int64_t{141} << 30, c.max_context, 8);
  if (plan.ok()) {
    for (const PlanRow& row : plan.value().rows) {
      HADAL_CHECK(row.weights > 0 && row.cache >= 0 && row.scratch > 0, "a plan's sums");
    }
    to_text(plan.value());
    to_json(plan.value());
  }
  return 0;
}
