// Views are uploaded one by one, each from the same variable on the stack.
//
// cuOpt filled a device vector of routes by `set_element_async` in a loop, from a local that dies
// in each turn. On CUDA 13.3 kernels got views whose sizes and pointers did not belong together.
// Report: https://github.com/NVIDIA/cuopt/pull/1759
// Wrong: the next turn overwrites the view that the copy of the last one may still read.
// Finds: SourceChanged
#include "zoo.h"

#include <vector>

struct View {
  char fields[192];
};

static View view_of(int route) {
  View view;
  memset(view.fields, route + 1, sizeof view.fields);
  return view;
}

static bool program() {
  constexpr int routes = 8;
  View *views = reinterpret_cast<View *>(device_memory(routes * sizeof(View)));
  View *host = reinterpret_cast<View *>(pinned_memory(routes * sizeof(View)));
  cudaStream_t stream = new_stream();
  std::vector<View> staged;
  staged.reserve(routes);

  for (int route = 0; route < routes; ++route) {
    const View view = view_of(route);
    const View *source = &view;
    if (fixed) {
      staged.push_back(view);
      source = &staged.back();
    }
    OK(cudaMemcpyAsync(views + route, source, sizeof(View), cudaMemcpyHostToDevice, stream));
  }
  OK(cudaMemcpyAsync(host, views, routes * sizeof(View), cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  bool right = true;
  for (int route = 0; route < routes; ++route) {
    right &= all_are(host[route].fields, route + 1, sizeof(View));
  }
  return right;
}
