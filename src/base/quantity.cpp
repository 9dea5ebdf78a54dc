// Units of 1000 are written K, M, G, T; units of 1024 KiB, MiB, GiB, TiB.
#include "base/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace hadal {
namespace {

std::string scaled(int64_t n, const char* const (&units)[5]) {
  double v = static_cast<double>(n);
  int i = 0;
  for (; v >= 999.995 && i < 4; ++i) v /= 1000;
  return i == 0 ? fmt::format("{}{}", n, units[0]) : fmt::format("{:.2f}{}", v, units[i]);
}

}  // namespace

std::string show_bytes(int64_t bytes) { return scaled(bytes, {" B", " kB", " MB", " GB", " TB"}); }

std::string show_count(int64_t n) { return scaled(n, {"", " k", " M", " B", " T"}); }

std::string show_integer(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(s.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3) {
    s.insert(at, 1, ',');
  }
  return s;
}

Result<int64_t> parse_memory(const std::string& text) {
  Error nonsense{fmt::format(
      "\"{}\" is no amount of memory; write a number and a unit, as in 141G, 96GiB or 1.5T",
      text.substr(0, 60))};
  double value = 0;
  auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || !std::isfinite(value)) return nonsense;
  std::string unit(end, text.data() + text.size());
  unit.erase(0,
             unit.find_first_not_of(' ') == unit.npos ? unit.size() : unit.find_first_not_of(' '));
  static constexpr std::string_view kLetters = "KMGT";
  size_t power =
      unit.empty() ? kLetters.npos : kLetters.find(static_cast<char>(std::toupper(unit[0])));
  if (power == kLetters.npos) return nonsense;
  std::string rest = unit.substr(1);
  bool binary = rest == "iB" || rest == "ib" || rest == "i";
  if (!binary && rest != "" && rest != "B" && rest != "b") return nonsense;
  double bytes = value * std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  if (!(bytes >= 1) || bytes >= 0x1p60) return nonsense;
  return static_cast<int64_t>(std::llround(bytes));
}

}  // namespace hadal
