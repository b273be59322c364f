/* The C API from C: what a foreign language's binding sees. */
#include <stdio.h>
#include <string.h>
#include <zeus/zeus.h>

int main(int argc, char** argv) {
  zeus_monitor* monitor = NULL;
  zeus_estimate e;
  zeus_record* record;
  if (argc < 2 || zeus_open("no such address", NULL, &monitor) != ZEUS_INVALID) return 1;
  if (strstr(zeus_error(), "no such address") == NULL) return 2;
  if (zeus_open(argv[1], NULL, &monitor) != ZEUS_OK) {
    fprintf(stderr, "%s\n", zeus_error());
    return strcmp(argv[1], "local:") == 0 ? 0 : 3; /* There may be nothing to measure here. */
  }
  record = zeus_record_new();
  if (zeus_end(monitor, zeus_begin(monitor, "c"), record) != ZEUS_OK) return 4;
  e.size = sizeof e;
  if (zeus_energy(record, ZEUS_TOTAL, &e) != ZEUS_OK || zeus_domain_count(monitor) == 0) return 5;
  zeus_record_free(record);
  zeus_close(monitor);
  return 0;
}
