// A table is freed right after its asynchronous upload.
//
// tfhe-rs uploaded the indexes of its lookup tables synchronously, and then asynchronously; the
// `free` after the copy stayed where it was. A reviewer asked what happens if it comes first.
// Report: https://github.com/zama-ai/tfhe-rs/pull/870
// Wrong: ordinary memory is freed, and used for the next table, while the copy may be pending.
// Finds: SourceChanged
#include "zoo.h"

enum { TABLES = 3 };

static char *new_table(int value, cudaStream_t stream) {
  char *table = device_memory(BYTES), *indexes = (char *)malloc(BYTES);
  if (!indexes) exit(1);
  memset(indexes, value, BYTES);
  OK(cudaMemcpyAsync(table, indexes, BYTES, cudaMemcpyHostToDevice, stream));
  if (fixed) OK(cudaStreamSynchronize(stream));
  free(indexes);
  return table;
}

static bool program(void) {
  char *tables[TABLES], *host = pinned_memory(TABLES * BYTES);
  cudaStream_t stream = new_stream();
  bool right = true;

  for (int i = 0; i < TABLES; ++i) tables[i] = new_table(i + 1, stream);
  for (int i = 0; i < TABLES; ++i) {
    OK(cudaMemcpyAsync(host + i * BYTES, tables[i], BYTES, cudaMemcpyDeviceToHost, stream));
  }
  OK(cudaStreamSynchronize(stream));
  for (int i = 0; i < TABLES; ++i) right &= all_are(host + i * BYTES, i + 1, BYTES);
  return right;
}
