#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

// Where there is no libFuzzer: runs the corpus, then so many mutations of it, the same each time.
//
//   fuzz_NAME CORPUS [MUTATIONS]
//
// CORPUS is a folder or one file. An input that breaks something is left in ./crash.

namespace {

namespace fs = std::filesystem;

// What a sanitizer or an invariant dies of. NOLINTNEXTLINE(*-avoid-non-const-global-variables)
std::string input;

void keep_input(int /*signal*/) {
  if (std::FILE* f = std::fopen("crash", "wb")) {
    std::fwrite(input.data(), 1, input.size(), f);
    std::fclose(f);
  }
  constexpr char kWhere[] = "the input is in ./crash\n";
  (void)!::write(STDERR_FILENO, kWhere, sizeof kWhere - 1);
}

void run() {
  // In memory of its own size, so that reading past its end is seen.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::vector<std::string> read_corpus(const fs::path& where) {
  std::vector<fs::path> files;
  if (fs::is_directory(where)) {
    for (const auto& entry : fs::directory_iterator(where)) files.push_back(entry.path());
  } else {
    files.push_back(where);
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& corpus) : corpus_(corpus) {}

  std::string next() {
    std::string text = pick();
    for (std::size_t n = 1 + below(4); n > 0; --n) mutate(text);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }
  const std::string& pick() { return corpus_[below(corpus_.size())]; }

  void mutate(std::string& text) {
    static const std::string kPieces[] = {
        "0",     "-1",     "-0",  "65536", "4294967296", "18446744073709551615",
        "1e309", "1e-320", "nan", "\n",    ",",          ":",
        "-",     "=",      "\"",  "[",     "]",          "end\n"};
    const std::size_t at = below(text.size() + 1), length = below(text.size() - at + 1);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1: text.insert(at, 1, static_cast<char>(below(256))); break;
      case 2: text.erase(at, length); break;
      case 3: text.insert(at, text.substr(at, length)); break;
      case 4: text.insert(at, kPieces[below(std::size(kPieces))]); break;
      default: {
        const std::string& other = pick();
        const std::size_t from = below(other.size() + 1);
        text.replace(at, length, other, from, below(other.size() - from + 1));
      }
    }
    text.resize(std::min<std::size_t>(text.size(), 4096));
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_{20240229};
};

}  // namespace

// A sanitizer's finding ends in SIGABRT too. NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "abort_on_error=1";
}
extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() {
  return "abort_on_error=1";
}
// NOLINTEND(bugprone-reserved-identifier)

int main(int count, char** arguments) {
  const std::vector<std::string> corpus =
      count > 1 ? read_corpus(arguments[1]) : std::vector<std::string>{};
  if (corpus.empty()) {
    std::fprintf(stderr, "usage: %s CORPUS [MUTATIONS]\n", arguments[0]);
    return 2;
  }
  std::signal(SIGABRT, keep_input);
  for (const std::string& text : corpus) {
    input = text;
    run();
  }
  const unsigned long mutations = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 0;
  Mutator mutator(corpus);
  for (unsigned long i = 0; i < mutations; ++i) {
    input = mutator.next();
    run();
  }
  std::printf("%zu inputs and %lu mutations\n", corpus.size(), mutations);
}
