// `hadal kernels`: which kernel serves each op on this machine, and why the others do not.
#include "kernels/dispatch/kernels.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model_options.h"
#include "verbs.h"

namespace hadal {
namespace {

class KernelsVerb : public Verb {
 public:
  std::string name() const override { return "kernels"; }
  std::string about() const override {
    return "Print which kernels serve on this machine, and why";
  }

  void declare(Flags& flags) override {
    flags.flag("--json", json_, "Print JSON");
    flags.option("--without", without_, "Name of a kernel that must not serve");
  }

  Result<int> run() override {
    HADAL_TRY_STATUS(check_without(without_));
    Device device = detect_device();
    std::vector<KernelChoice> table = choose_kernels(device, without_).table;
    json_ ? print_json(device, table) : print_table(device, table);
    return 0;
  }

 private:
  static void print_table(const Device& device, const std::vector<KernelChoice>& table) {
    fmt::print("device: {}\n\n{:<28} {:<34} {}\n", device.name, "op", "kernel", "serves");
    std::string last;
    for (const auto& k : table) {
      fmt::print("{:<28} {:<34} {}\n", k.op == last ? "" : k.op, k.candidate,
                 k.chosen ? "yes" : "no: " + k.reason);
      last = k.op;
    }
  }

  static void print_json(const Device& device, const std::vector<KernelChoice>& table) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& k : table) {
      nlohmann::ordered_json row{{"op", k.op}, {"kernel", k.candidate}, {"chosen", k.chosen}};
      if (!k.chosen) row["reason"] = k.reason;
      rows.push_back(std::move(row));
    }
    nlohmann::ordered_json out{{"device", device.name}, {"kernels", std::move(rows)}};
    fmt::print("{}\n", out.dump(2));
  }

  bool json_ = false;
  std::vector<std::string> without_;
};

}  // namespace

std::unique_ptr<Verb> kernels_verb() { return std::make_unique<KernelsVerb>(); }

}  // namespace hadal
