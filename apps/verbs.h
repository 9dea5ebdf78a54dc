// The verbs of the program, one file each.
#pragma once

#include <memory>

#include "flags.h"

namespace hadal {

std::unique_ptr<Verb> run_verb();
std::unique_ptr<Verb> chat_verb();
std::unique_ptr<Verb> serve_verb();
std::unique_ptr<Verb> logits_verb();
std::unique_ptr<Verb> render_verb();
std::unique_ptr<Verb> inspect_verb();
std::unique_ptr<Verb> plan_verb();
std::unique_ptr<Verb> bench_verb();
std::unique_ptr<Verb> kernels_verb();

}  // namespace hadal
