// Joules per token of an inference loop, through the C API of Zeus.
//
//     inference_loop [ADDRESS]        local: by default; sim:h100x8 needs no hardware
//
// The model is a small recurrent language model with fixed random weights: what it says is noise,
// but every token costs the multiplications of a real one, first for the prompt (prefill, the whole
// prompt in one batch of work) and then token by token (decode).

#include <zeus/zeus.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

class Model {
 public:
  static constexpr int kVocabulary = 256, kWidth = 512, kLayers = 4;

  Model() : embedding_(kVocabulary * kWidth), state_(kLayers * kWidth) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(kWidth)));
    for (float& w : embedding_) w = normal(random);
    layers_.resize(kLayers, std::vector<float>(2 * kWidth * kWidth));
    for (auto& layer : layers_) {
      for (float& w : layer) w = normal(random);
    }
  }

  /// Takes one token in and answers the likeliest next one.
  int step(int token) {
    std::vector<float> x(embedding_.begin() + token * kWidth,
                         embedding_.begin() + (token + 1) * kWidth);
    for (int l = 0; l < kLayers; ++l) x = layer(l, x);
    int best = 0;
    float most = -INFINITY;
    for (int v = 0; v < kVocabulary; ++v) {
      float logit = 0;
      for (int i = 0; i < kWidth; ++i) logit += embedding_[v * kWidth + i] * x[i];
      if (logit > most) most = logit, best = v;
    }
    return best;
  }

 private:
  std::vector<float> layer(int l, const std::vector<float>& x) {
    const float* w = layers_[l].data();
    float* h = state_.data() + l * kWidth;
    std::vector<float> y(kWidth);
    for (int i = 0; i < kWidth; ++i) {
      float sum = 0;
      for (int j = 0; j < kWidth; ++j) sum += w[i * 2 * kWidth + j] * x[j];
      for (int j = 0; j < kWidth; ++j) sum += w[i * 2 * kWidth + kWidth + j] * h[j];
      y[i] = std::tanh(sum);
    }
    for (int i = 0; i < kWidth; ++i) h[i] = y[i];
    return y;
  }

  std::vector<float> embedding_, state_;
  std::vector<std::vector<float>> layers_;
};

/// One line: what a phase of so many tokens took.
void print(const char* phase, const zeus_record* record, int tokens) {
  zeus_estimate e{};
  e.size = sizeof e;
  if (zeus_energy(record, ZEUS_TOTAL, &e) != ZEUS_OK) {
    std::fprintf(stderr, "%s\n", zeus_error());
    std::exit(1);
  }
  std::printf("%-8s %5d tokens %8.3f s ", phase, tokens, zeus_seconds(record));
  if (std::isnan(e.energy_j)) {
    std::printf("  energy not measured (flags %#x)\n", e.flags);
    return;
  }
  std::printf("%10.3f J +- %.3f J   %9.5f J/token%s\n", e.energy_j, 2 * e.u_cmp_j,
              e.energy_j / tokens, (e.flags & ZEUS_FLAG_MISSING) != 0 ? "   incomplete" : "");
}

}  // namespace

int main(int argc, char** argv) {
  zeus_options options{};
  options.size = sizeof options;
  options.environment = std::getenv;  // CUDA_VISIBLE_DEVICES chooses the GPUs.
  zeus_monitor* monitor = nullptr;
  if (zeus_open(argc > 1 ? argv[1] : nullptr, &options, &monitor) != ZEUS_OK) {
    std::fprintf(stderr, "%s\n", zeus_error());
    return 1;
  }
  if (const char* scenario = zeus_simulation(monitor)) std::printf("SIMULATED: %s\n", scenario);
  for (size_t i = 0; zeus_problem(monitor, i) != nullptr; ++i) {
    std::fprintf(stderr, "not measured: %s\n", zeus_problem(monitor, i));
  }

  Model model;
  zeus_record* record = zeus_record_new();
  const std::string prompt(512, 'z');
  constexpr int kReply = 512;

  zeus_window* window = zeus_begin(monitor, "prefill");
  int token = 0;
  for (const char c : prompt) token = model.step(static_cast<unsigned char>(c));
  zeus_end(monitor, window, record);
  print("prefill", record, static_cast<int>(prompt.size()));

  window = zeus_begin(monitor, "decode");
  for (int i = 0; i < kReply; ++i) token = model.step(token);
  zeus_end(monitor, window, record);
  print("decode", record, kReply);

  zeus_record_free(record);
  zeus_close(monitor);
  return token < 0 ? 1 : 0;
}
