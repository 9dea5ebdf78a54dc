// The command line by CLI11, and the sentences for what is wrong with it.
#include "flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

namespace hadal {

// `unit` stands for the value in --help.
template <class T>
CLI::Option* Flags::add(const std::string& name, T& value, const char* unit,
                        const std::string& about) {
  return app_.add_option(name, value, about)->type_name(unit)->group(section_);
}

void Flags::argument(const std::string& name, std::string& value, const std::string& about) {
  add(name, value, "", about)->required()->group("Arguments");
}
void Flags::optional_argument(const std::string& name, std::string& value,
                              const std::string& about) {
  add(name, value, "", about)->group("Arguments");
}

void Flags::option(const std::string& name, std::string& value, const std::string& about) {
  add(name, value, "TEXT", about);
}
void Flags::option(const std::string& name, int& value, const std::string& about) {
  add(name, value, "N", fmt::format("{} [{}]", about, value));
}
void Flags::option(const std::string& name, int64_t& value, const std::string& about) {
  add(name, value, "N", fmt::format("{} [{}]", about, value));
}
void Flags::option(const std::string& name, std::optional<int64_t>& value,
                   const std::string& about) {
  add(name, value, "N", about);
}
void Flags::option(const std::string& name, std::optional<uint64_t>& value,
                   const std::string& about) {
  add(name, value, "N", about);
}
void Flags::option(const std::string& name, std::optional<float>& value, const std::string& about) {
  add(name, value, "X", about);
}
void Flags::option(const std::string& name, std::vector<std::string>& values,
                   const std::string& about) {
  // One value each time: a list that takes all that follows would swallow the arguments.
  add(name, values, "TEXT", about)->expected(1)->take_all()->allow_extra_args(false);
}
void Flags::choice(const std::string& name, std::string& value,
                   const std::vector<std::string>& allowed, const std::string& about) {
  std::string unit = fmt::format("{}", fmt::join(allowed, "|"));
  add(name, value, "", fmt::format("{} [{}]", about, value))
      ->check(CLI::IsMember(allowed).description(""))
      ->type_name(unit);
}
void Flags::flag(const std::string& name, bool& value, const std::string& about) {
  app_.add_flag(name, value, about)->group(section_);
}
void Flags::require(const std::string& name) { app_.get_option(name)->required(); }

namespace {

constexpr const char* kAbout =
    "hadal runs DeepSeek V3, V3.1, V3.2 and V4 from their released checkpoints.\n"
    "MODEL is the folder of a checkpoint: config.json, *.safetensors, tokenizer.json.";

int usage_error(const std::string& sentence, const std::string& verb) {
  std::fprintf(stderr, "hadal: %s (hadal%s --help lists what there is)\n", sentence.c_str(),
               verb.empty() ? "" : (" " + verb).c_str());
  return kUsageError;
}

// One sentence for what CLI11 did not accept on the command line of a verb.
std::string sentence_of(const CLI::ParseError& e, const CLI::App& verb) {
  std::string what = e.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&e)) {
    auto words = verb.remaining();
    for (const std::string& word : words) {
      if (word.size() > 1 && word[0] == '-') return fmt::format("unknown option {}", word);
    }
    return fmt::format("unexpected argument '{}': put quotes around a text of several words",
                       words.empty() ? "" : words.front());
  }
  if (const std::string could = "Could not convert: "; what.starts_with(could))
    return fmt::format("a value cannot be read: {}", what.substr(could.size()));
  return what;
}

// Two user errors arrive as exceptions: no memory left, and an output that takes no more.
Result<int> run_verb_safely(Verb& verb) {
  try {
    return verb.run();
  } catch (const std::bad_alloc&) {
    return Error{"no memory left: give a smaller --max-model-len or model, or free memory"};
  } catch (const std::system_error& e) {
    return Error{std::string("standard output cannot be written: ") + e.what()};
  }
}

int print_help(const CLI::App& app, const CLI::App* verb) {
  std::string text = verb == &app ? app.help() : verb->help("hadal");
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

int run_program(const std::vector<std::unique_ptr<Verb>>& verbs, int argc, char** argv) {
  CLI::App app(kAbout, "hadal");
  app.set_version_flag("--version", "hadal " HADAL_VERSION, "Print the version and end");
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  for (auto [word, ours] :
       {std::pair{"SUBCOMMAND", "VERB"}, {"Positionals", "Arguments"}, {"REQUIRED", "(required)"}})
    app.get_formatter()->label(word, ours);
  for (const auto& verb : verbs) {
    Flags flags(*app.add_subcommand(verb->name(), verb->about())->group("Verbs"));
    verb->declare(flags);
  }

  std::string first = argc > 1 ? argv[1] : "", known;
  bool found = false;
  for (const auto& verb : verbs) {
    known += (known.empty() ? "" : ", ") + verb->name();
    found = found || verb->name() == first;
  }
  if (first.empty()) return usage_error("say what to do: " + known, "");
  if (first[0] != '-' && !found)
    return usage_error(fmt::format("there is no verb '{}', only {}", first, known), "");

  const CLI::App* chosen = first[0] == '-' ? &app : app.get_subcommand(first);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print_help(app, chosen);
  } catch (const CLI::Success& e) {  // --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    if (chosen == &app) return usage_error("unknown option " + first, "");
    return usage_error(sentence_of(e, *chosen), first);
  }
  for (const auto& verb : verbs) {
    if (verb->name() != first) continue;
    auto status = run_verb_safely(*verb);
    if (std::fflush(stdout) != 0 && status.ok())
      status = Error{std::string("standard output cannot be written: ") + std::strerror(errno)};
    if (status.ok()) return status.value();
    std::fprintf(stderr, "hadal: error: %s\n", status.error().message.c_str());
    return kUserError;
  }
  return kUsageError;
}

}  // namespace hadal
