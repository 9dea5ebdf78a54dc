// The program: one binary with verbs.
#include "verbs.h"

int main(int argc, char** argv) {
  std::vector<std::unique_ptr<hadal::Verb>> verbs;
  verbs.push_back(hadal::run_verb());
  verbs.push_back(hadal::chat_verb());
  verbs.push_back(hadal::serve_verb());
  verbs.push_back(hadal::logits_verb());
  verbs.push_back(hadal::render_verb());
  verbs.push_back(hadal::inspect_verb());
  verbs.push_back(hadal::plan_verb());
  verbs.push_back(hadal::bench_verb());
  verbs.push_back(hadal::kernels_verb());
  return hadal::run_program(verbs, argc, argv);
}
