// A program with another handler of SIGSEGV: `OWNER MOMENT`. It makes no call of CUDA
// between the moment and its next access.
#include "../../../../tests/ffi/owners/owner.h"

#include "cuda.h"

#include <cstring>
#include <string>

namespace {

char *host, *device;
cudaStream_t stream;

void starts_copy() {
  OK(cudaMemcpyAsync(device, host, 100, cudaMemcpyHostToDevice, stream));
}

void waits() {
  OK(cudaStreamSynchronize(stream));
}

// The report has them.
int findings() {
  return 0;
}

} // namespace

int main(int count, char** arguments) {
  const std::string argument = count > 1 ? arguments[1] : "";
  const size_t space = argument.find(' ');
  const std::string name = argument.substr(0, space), moment = argument.substr(space + 1);
  if (!choose_owner(name.c_str())) return 2;
  if (moment == "before" || moment == "removed") install_owner();
  OK(cudaStreamCreate(&stream));
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), PAGE));
  OK(cudaMalloc(reinterpret_cast<void**>(&device), PAGE));
  std::memset(host, 0, PAGE);
  const program program = {host, starts_copy, waits, [] {}, findings};
  return runs(&program, moment.c_str(), 0);
}
