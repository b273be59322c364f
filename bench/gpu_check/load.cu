// A load for one NVIDIA GPU, as load.h says: nvcc -O3 -o gpu_load load.cu; gpu_load GPU, where GPU
// is its UUID or its index in CUDA's order. High is a kernel of multiply-adds on every
// multiprocessor, in chunks of about a millisecond; low is a GPU that waits.

#include <cuda_runtime.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr long long kChunkNs = 1000000, kSecondNs = 1000000000;

__global__ void spin(float* out, int rounds) {
  float a = threadIdx.x * 1e-3f, b = a + 1, c = a + 2, d = a + 3;
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      a = fmaf(a, 0.999f, 0.001f);
      b = fmaf(b, 0.999f, 0.001f);
      c = fmaf(c, 0.999f, 0.001f);
      d = fmaf(d, 0.999f, 0.001f);
    }
  }
  // Never true, but the compiler cannot know: without it there would be nothing to compute.
  if (a + b + c + d == 12345.678f) out[0] = a;
}

void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "gpu_load: cannot %s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

long long now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * kSecondNs + t.tv_nsec;
}

void sleep_until(long long ns) {
  const timespec t = {static_cast<time_t>(ns / kSecondNs), static_cast<long>(ns % kSecondNs)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != 0) {
  }
}

int blocks = 0, rounds = 64;
float* out = nullptr;

void chunk() {
  spin<<<blocks, 256>>>(out, rounds);
  check(cudaGetLastError(), "start a kernel");
  check(cudaDeviceSynchronize(), "run a kernel");
}

void busy_until(long long end) {
  while (now() < end) chunk();
}

// Sets `rounds` so that a chunk takes kChunkNs, once the clocks have risen.
void calibrate() {
  const long long begin = now();
  while (now() < begin + kSecondNs / 2) {
    const long long t = now();
    chunk();
    const double ratio = static_cast<double>(kChunkNs) / static_cast<double>(now() - t);
    rounds = static_cast<int>(rounds * (ratio > 2 ? 2 : ratio < 0.5 ? 0.5 : ratio));
    if (rounds < 1) rounds = 1;
  }
}

bool obey(const char* line) {
  double period = 0, duty = 0, seconds = 0;
  long long start = 0;
  if (std::sscanf(line, "busy %lf", &seconds) == 1) {
    busy_until(now() + static_cast<long long>(seconds * 1e9));
    return true;
  }
  if (std::sscanf(line, "square %lf %lf %lld %lf", &period, &duty, &start, &seconds) != 4 ||
      !(period > 0)) {
    return false;
  }
  const long long end = start + static_cast<long long>(seconds * 1e9);
  for (long long i = 0;; ++i) {
    const long long rise = start + static_cast<long long>(static_cast<double>(i) * period * 1e9);
    if (rise >= end) break;
    sleep_until(rise);
    busy_until(rise + static_cast<long long>(duty * period * 1e9));
  }
  return true;
}

// CUDA numbers the GPUs that it is shown in its own order; a UUID is safe from that.
void choose(const char* gpu) {
  if (std::strncmp(gpu, "GPU-", 4) == 0) {
    setenv("CUDA_VISIBLE_DEVICES", gpu, 1);
    gpu = "0";
  }
  check(cudaSetDevice(std::atoi(gpu)), "use this GPU");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: gpu_load GPU\n", stderr);
    return 2;
  }
  choose(argv[1]);
  int device = 0, multiprocessors = 0;
  check(cudaGetDevice(&device), "ask for the GPU");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "ask how large the GPU is");
  blocks = multiprocessors * 8;  // 2048 threads each: as many as fit.
  check(cudaMalloc(&out, sizeof(float)), "allocate memory");
  calibrate();
  std::puts("ready");
  std::fflush(stdout);
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    line[std::strcspn(line, "\n")] = '\0';
    if (obey(line)) {
      std::puts("ok");
    } else {
      std::printf("does not know: %s\n", line);
    }
    std::fflush(stdout);
  }
  return 0;
}
