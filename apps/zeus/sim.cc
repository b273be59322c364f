#include "options.h"
namespace zeus::cli {
void add_sim(CLI::App&, const Globals&, Verbs&) {}
}
