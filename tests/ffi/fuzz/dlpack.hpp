// Buffers as tensors, and tensors as buffers. The structs are written down as the specification of
// DLPack 1.1 has them, not as pinlane does.

#pragma once

#include "pinned.hpp"

#include <chrono>
#include <thread>

struct dl_version {
  std::uint32_t major, minor;
};
struct dl_place {
  std::int32_t type, number;
};
struct dl_type {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct dl_tensor {
  void* data;
  dl_place place;
  std::int32_t ndim;
  dl_type type;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  dl_tensor tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  dl_version version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  dl_tensor tensor;
};

enum : std::int32_t { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3, dl_extension = 12 };

/// A tensor that the program has made, of its own memory. It stays until the program's end.
struct own_tensor {
  DLManagedTensorVersioned versioned{};
  DLManagedTensor legacy{};
  std::vector<std::int64_t> shape, strides;
  /// Its memory, if that is on the host.
  std::unique_ptr<std::uint8_t[]> memory;
  /// Where the elements begin there, and the bytes of all together.
  std::size_t at = 0, bytes = 0;
  /// The library has it: it calls the deleter once.
  std::atomic<bool> is_given{false};
  std::atomic<int> deleted{0};
};

inline void delete_own(own_tensor& own) {
  require(own.is_given, "the deleter of a tensor was called that the library does not have");
  require(own.deleted++ == 0, "a deleter was called twice");
}

/// A tensor that the library has made, and the program owns. One of the two is set.
struct tensor {
  DLManagedTensorVersioned* versioned = nullptr;
  DLManagedTensor* legacy = nullptr;
  /// The bytes of its elements, if they have no gaps.
  contents bytes;
  bool has_gaps = false, is_read_only = false, is_on_host = true;
  int device = -1;
  /// The stream that the library was told: it alone is ordered behind what was done before.
  const void* consumer = nullptr;
  /// Of device memory: how far the first element is behind a multiple of 8.
  std::size_t off = 0;
  /// What the buffer was made of.
  std::shared_ptr<own_tensor> made_of;
  /// When device memory is there on the consumer's stream.
  pinlane_ticket* ready = nullptr;

  tensor() = default;
  tensor(const tensor&) = delete;
  ~tensor() { static_cast<void>(pinlane_ticket_free(ready)); }

  [[nodiscard]] const dl_tensor& view() const {
    return versioned != nullptr ? versioned->tensor : legacy->tensor;
  }
};

inline void delete_tensor(world& w, const tensor& gone) {
  // Memory stays where nobody may ask the stream that uses it.
  w.may_keep = w.may_keep || w.captured;
  if (gone.versioned != nullptr) {
    gone.versioned->deleter(gone.versioned);
  } else {
    gone.legacy->deleter(gone.legacy);
  }
}

// -- Buffers as tensors --------------------------------------------------------------------------

/// What a tensor of a buffer is to look like.
struct some_layout {
  const pinlane_dlpack_options* options;
  std::size_t at = 0, bytes = 0;
  bool has_gaps = false, is_read_only = false;
};

constexpr std::uint64_t dl_read_only = 1, dl_copied = 2, dl_padded = 4;

inline std::size_t element_bits(dl_type type) { return std::size_t{type.bits} * type.lanes; }

/// The bytes of elements without gaps.
inline std::size_t bytes_of(dl_type type, std::size_t count, bool is_padded) {
  const std::size_t bits = element_bits(type);
  return is_padded ? (bits + 7) / 8 * count : (bits * count + 7) / 8;
}

/// Whether the specification knows its size.
inline bool is_type(dl_type type) {
  const int expected = type.code == 17 ? 4 : type.code == 15 || type.code == 16 ? 6 : type.bits;
  return element_bits(type) > 0 && type.bits == expected;
}

/// One of all widths.
inline dl_type some_type(frame& f) {
  const dl_type types[] = {{1, 8, 1},  {2, 32, 1}, {0, 64, 1}, {1, 4, 1},  {0, 1, 1},
                           {15, 6, 1}, {17, 4, 1}, {1, 4, 3},  {1, 12, 1}, {1, 3, 2}};
  return types[f.in.below(f.in.byte() % 2 == 0 ? 3 : 10)];
}

/// Whether the elements lie within `size` bytes. `count` gets their number.
inline bool is_layout(const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& strides, dl_type type, std::size_t at,
                      std::size_t size, std::size_t& count) {
  const std::size_t element = element_bits(type);
  // What is far too large need not be exact.
  long double product = 1, low = 0, high = 0;
  bool is_empty = false, is_negative = false;
  for (std::size_t number = 0; number < shape.size(); ++number) {
    is_negative |= shape[number] < 0;
    is_empty |= shape[number] == 0;
    product *= shape[number] == 0 ? 1 : static_cast<long double>(shape[number]);
    const long double last = static_cast<long double>(shape[number] - (shape[number] > 0)) *
                             static_cast<long double>(strides[number]);
    low += std::min(last, 0.0L);
    high += std::max(last, 0.0L);
  }
  if (is_negative || !is_type(type) || (element % 8 == 0 && at % (element / 8) != 0) ||
      product > static_cast<long double>(INT64_MAX)) {
    return false;
  }
  count = is_empty ? 0 : static_cast<std::size_t>(product);
  const auto bits = static_cast<long double>(element), first = 8 * static_cast<long double>(at);
  return is_empty || (first + low * bits >= 0 &&
                      first + (high + 1) * bits <= 8 * static_cast<long double>(size));
}

/// The strides of elements without gaps.
inline std::vector<std::int64_t> compact(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::uint64_t stride = 1; // of a shape that is none, it may overflow
  for (std::size_t number = shape.size(); number > 0; --number) {
    strides[number - 1] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(std::max<std::int64_t>(shape[number - 1], 1));
  }
  return strides;
}

inline some_layout choose_layout(frame& f, std::size_t size, const pinlane_stream* stream) {
  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  const dl_type odd[] = {{1, 8, 32}, {0, 0, 1}, {1, 8, 0}, {17, 8, 1}, {255, 255, 65535}};
  const dl_type type = f.in.rarely(32) ? odd[f.in.below(5)] : some_type(f);
  options.code = type.code;
  options.bits = type.bits;
  options.lanes = type.lanes;
  const std::size_t element = element_bits(type);
  const std::size_t offsets[] = {0, 0, 256, 512, 4, SIZE_MAX};
  options.offset_bytes = offsets[f.in.below(f.in.rarely(32) ? 6 : 3)];
  options.device_type = f.in.rarely(8) ? dl_cuda : f.in.byte() % 2 == 0 ? dl_cpu : dl_cuda_host;
  options.flags = f.in.rarely(8) ? 2 : f.in.byte() % 8 == 7 ? PINLANE_DLPACK_READ_ONLY : 0;
  options.stream = stream;

  const std::size_t behind = size - std::min(size, options.offset_bytes);
  const auto whole = static_cast<std::int64_t>(element == 0 ? 0 : 8 * behind / element);
  std::vector<std::int64_t> shape{whole}, strides;
  const std::uint8_t choice = f.in.byte();
  if (choice < 128) { // the whole buffer
    options.ndim = choice % 2;
  } else {
    const std::int64_t lengths[] = {1, 2, 3, 0, whole, -1, INT64_MAX, std::int64_t{1} << 32};
    shape.resize(f.in.below(4));
    for (std::int64_t& length : shape) {
      length = lengths[f.in.below(f.in.rarely(16) ? 8 : 5)];
    }
    options.ndim = static_cast<std::int32_t>(shape.size());
  }
  const std::vector<std::int64_t> tight = compact(shape);
  strides = tight;
  const bool are_given = f.in.rarely(48);
  if (are_given) {
    const std::int64_t steps[] = {1, 2, 0, -1, INT64_MIN, INT64_MAX};
    for (std::int64_t& stride : strides) {
      stride = f.in.byte() % 2 == 0 ? stride : steps[f.in.below(f.in.rarely(32) ? 6 : 3)];
    }
    options.ndim = static_cast<std::int32_t>(shape.size());
  }
  // Arrays of 0 elements have an address too: NULL stands for something else.
  std::vector<std::int64_t> lengths = shape, steps = strides;
  lengths.push_back(0);
  steps.push_back(0);
  options.shape = choice < 128 ? nullptr : f.array(lengths);
  options.strides = are_given ? f.array(steps) : nullptr;
  if (f.in.rarely(6)) {
    options.ndim = -1;
  }
  const pinlane_dlpack_options* const given = f.options(options);
  some_layout chosen{given};
  std::size_t count = 0;
  if (given == nullptr) {
    chosen.bytes = size;
    return chosen;
  }
  const bool fits = is_layout(shape, strides, type, options.offset_bytes, size, count);
  f.must_fail |= !fits || options.ndim < 0 || options.flags > 1 || options.device_type == dl_cuda;
  chosen.at = count == 0 ? 0 : options.offset_bytes;
  chosen.bytes = fits ? bytes_of(type, count, false) : 0;
  for (std::size_t number = 0; number < shape.size(); ++number) {
    chosen.has_gaps |= count > 0 && shape[number] > 1 && strides[number] != tight[number];
  }
  chosen.is_read_only = options.flags == 1;
  return chosen;
}

/// The buffer is a tensor now.
inline void exported(frame& f, kind which, argument buffer, const some_layout& layout,
                     DLManagedTensorVersioned* made) {
  object gone = f.w.remove(which, buffer);
  const auto result = std::make_shared<tensor>();
  if (which == kind::gpu) {
    static_cast<void>(pinlane_stream_record(layout.options->stream, &result->ready));
  }
  result->versioned = made;
  result->has_gaps = layout.has_gaps;
  result->is_read_only = layout.is_read_only;
  result->is_on_host = which == kind::buffer;
  result->device = gone.device;
  result->consumer = layout.options == nullptr ? nullptr : layout.options->stream;
  result->off = (gone.off + layout.at) % 8;
  result->made_of = gone.made_of;
  const dl_tensor& view = made->tensor;
  require(made->version.major == 1 && (made->flags & 1) == (layout.is_read_only ? 1 : 0),
          "a tensor of another kind");
  const bool is_packed = element_bits(view.type) % 8 != 0;
  require((made->flags & dl_padded) == 0 && (!is_packed || made->version.minor > 0),
          "a tensor does not say that its elements are packed");
  require(layout.bytes == 0 || view.byte_offset == layout.at, "a tensor begins somewhere else");
  if (!layout.has_gaps) {
    result->bytes.assign(layout.bytes, unknown);
    if (!f.w.threaded && lies_within(layout.at, layout.bytes, gone.bytes.size())) {
      const auto first = gone.bytes.begin() + static_cast<std::ptrdiff_t>(layout.at);
      std::copy(first, first + static_cast<std::ptrdiff_t>(layout.bytes), result->bytes.begin());
    }
    if (which == kind::buffer && layout.bytes > 0) {
      f.compare(result->bytes, 0, static_cast<const std::uint8_t*>(view.data) + layout.at,
                layout.bytes);
    }
  }
  const std::lock_guard<std::mutex> guard(f.w.lock);
  f.w.tensors.push_back(result);
}

/// Whether the program has so many tensors that it makes no more.
inline bool has_enough_tensors(world& w) {
  const std::lock_guard<std::mutex> guard(w.lock);
  return w.tensors.size() >= 12;
}

/// The stream that a tensor is used on. Any thread must be able to use it.
inline argument some_consumer(frame& f, argument stream) {
  const std::lock_guard<std::mutex> guard(f.w.lock);
  const object* const found = f.w.find(kind::stream, stream);
  f.must_fail |= found != nullptr && found->is_of_one_thread;
  return stream;
}

inline pinlane_status buffer_into_dlpack(frame& f) {
  if (has_enough_tensors(f.w)) {
    return PINLANE_STATUS_OK;
  }
  const argument buffer = f.any(kind::buffer);
  {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    const object* const found = f.w.find(kind::buffer, buffer);
    f.must_fail |= found != nullptr && found->lent != nullptr;
  }
  const bool wrong_buffer = f.must_fail;
  const argument stream =
      some_consumer(f, f.in.rarely(64) ? f.or_null(kind::stream) : argument{nullptr});
  const some_layout layout = choose_layout(f, f.w.size_of(kind::buffer, buffer), stream);
  f.must_fail = layout.options == nullptr ? wrong_buffer : f.must_fail;
  auto** const out = f.out<DLManagedTensorVersioned*>();
  const pinlane_status status = pinlane_buffer_into_dlpack(buffer, layout.options, out);
  if (status == PINLANE_STATUS_OK) {
    exported(f, kind::buffer, buffer, layout, *out);
  }
  return status;
}

inline pinlane_status device_buffer_into_dlpack(frame& f) {
  if (has_enough_tensors(f.w)) {
    return PINLANE_STATUS_OK;
  }
  const argument buffer = f.any(kind::gpu), stream = some_consumer(f, f.any(kind::stream));
  bool is_borrowed = false;
  {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    const object* const found = f.w.find(kind::gpu, buffer);
    f.must_fail |= found != nullptr && found->source != nullptr; // a batch
    is_borrowed = found != nullptr && found->is_borrowed;
  }
  // A stream may use the memory of another device of its machine.
  const int of_stream = f.w.device_of(kind::stream, stream);
  const int of_buffer = f.w.device_of(kind::gpu, buffer);
  f.must_fail |=
      of_stream >= 0 && of_buffer >= 0 && machine_of(of_stream) != machine_of(of_buffer);
  const some_layout layout = choose_layout(f, f.w.size_of(kind::gpu, buffer), stream);
  f.must_fail |= layout.options == nullptr;
  auto** const out = f.out<DLManagedTensorVersioned*>();
  if (is_borrowed) { // who owns the memory would not know what uses it
    f.must_fail = false;
    return PINLANE_STATUS_OK;
  }
  const pinlane_status status = pinlane_device_buffer_into_dlpack(buffer, layout.options, out);
  if (status == PINLANE_STATUS_OK) {
    exported(f, kind::gpu, buffer, layout, *out);
  }
  return status;
}

// -- Tensors -------------------------------------------------------------------------------------

/// Takes one of the program's tensors, so that no other thread uses it.
template <class Wanted>
std::shared_ptr<tensor> take_tensor(frame& f, Wanted is_wanted) {
  const std::uint8_t choice = f.in.byte();
  const std::lock_guard<std::mutex> guard(f.w.lock);
  std::vector<std::shared_ptr<tensor>>& all = f.w.tensors;
  for (std::size_t number = 0; number < all.size(); ++number) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>((choice + number) % all.size());
    if (is_wanted(**at)) {
      const std::shared_ptr<tensor> taken = *at;
      all.erase(at);
      return taken;
    }
  }
  return nullptr;
}

inline void put_tensor(frame& f, const std::shared_ptr<tensor>& back) {
  const std::lock_guard<std::mutex> guard(f.w.lock);
  f.w.tensors.push_back(back);
}

inline pinlane_status tensor_delete(frame& f) {
  const auto gone = take_tensor(f, [](const tensor&) { return true; });
  if (gone != nullptr) {
    delete_tensor(f.w, *gone);
  }
  return PINLANE_STATUS_OK;
}

/// A tensor of the program's own memory, which has at most one thing wrong.
inline std::shared_ptr<own_tensor> make_tensor(frame& f, void* memory, std::size_t bytes,
                                               dl_place place) {
  const auto own = std::make_shared<own_tensor>();
  own->bytes = bytes;
  DLManagedTensorVersioned& made = own->versioned;
  made.version = {1, f.in.byte() % 4U};
  made.manager_ctx = own.get();
  made.deleter = [](DLManagedTensorVersioned* self) {
    delete_own(*static_cast<own_tensor*>(self->manager_ctx));
  };
  // Device memory stays aligned, as checksums want it.
  const std::size_t step = place.type == dl_cpu ? 1 : 256;
  const std::size_t ahead = std::min(bytes, step * f.in.below(9)) / step * step;
  dl_tensor& view = made.tensor;
  view.data = memory;
  view.byte_offset = own->at = ahead;
  view.place = place;
  view.type = some_type(f);
  const bool is_padded = f.in.byte() % 4 == 3;
  if (is_padded) {
    made.flags = dl_padded;
  } else if (f.in.byte() % 8 == 7) {
    made.flags = dl_copied;
  }
  const std::size_t room = bytes - ahead;
  const std::size_t count =
      is_padded ? room / bytes_of(view.type, 1, true) : 8 * room / element_bits(view.type);
  own->bytes = bytes_of(view.type, count, is_padded);
  const auto length = static_cast<std::int64_t>(count);
  own->shape = {length};
  if (length % 6 == 0 && f.in.byte() % 2 == 0) {
    own->shape = {2, length / 6, 3};
  }
  own->strides = compact(own->shape);
  view.ndim = static_cast<std::int32_t>(own->shape.size());
  view.shape = own->shape.data();
  view.strides = f.in.byte() % 2 == 0 ? own->strides.data() : nullptr;
  if (f.in.rarely(64)) {
    f.must_fail = true;
    switch (f.in.below(12)) {
    case 0:
      made.version.major = f.in.byte() % 2 == 0 ? 0 : 2;
      break;
    case 1:
      made.flags |= dl_read_only;
      break;
    case 2:
      view.ndim = -1;
      break;
    case 3:
      view.shape = nullptr;
      break;
    case 4:
      view.type.bits = 0;
      break;
    case 5:
      own->shape[0] = -1;
      break;
    case 6:
      own->shape[0] = INT64_MAX;
      view.type = {1, 8, 4};
      f.must_fail = own->bytes > 0 || own->shape.size() == 1; // a length of 0 makes it empty
      break;
    case 7:
      view.data = nullptr;
      f.must_fail = own->bytes > 0;
      break;
    case 8: // it wraps, or lies behind all memory
      view.byte_offset = UINT64_MAX - f.in.below(16);
      f.must_fail = own->bytes > 0;
      break;
    case 9:
      made.flags |= UINT64_C(1) << (3 + f.in.below(61));
      break;
    case 10: // no FP4, no FP6
      view.type = {static_cast<std::uint8_t>(15 + f.in.below(3)), 8, 1};
      break;
    default:
      own->strides.back() = 7;
      view.strides = own->strides.data();
      f.must_fail = own->bytes > 0 && own->shape.back() > 1;
      break;
    }
  }
  own->legacy.tensor = view;
  own->legacy.manager_ctx = own.get();
  own->legacy.deleter = [](DLManagedTensor* self) {
    delete_own(*static_cast<own_tensor*>(self->manager_ctx));
  };
  const std::lock_guard<std::mutex> guard(f.w.lock);
  f.w.own_tensors.push_back(own);
  return own;
}

/// A tensor in host memory of the program's own.
inline std::shared_ptr<own_tensor> make_host_tensor(frame& f) {
  const std::size_t bytes = f.in.below(2000);
  std::unique_ptr<std::uint8_t[]> memory(new std::uint8_t[bytes + 1]);
  for (std::size_t at = 0; at < bytes; ++at) {
    memory[at] = static_cast<std::uint8_t>(at * 3);
  }
  const bool failed = std::exchange(f.must_fail, false);
  const auto own = make_tensor(f, memory.get(), bytes, {dl_cpu, 0});
  own->memory = std::move(memory);
  f.must_fail |= failed;
  return own;
}

/// Gives `call(tensor)` a tensor, and takes note of who owns it then.
template <class Call>
pinlane_status give_own(const std::shared_ptr<own_tensor>& own, Call call) {
  own->is_given = true;
  const pinlane_status status = call(own.get());
  if (status != PINLANE_STATUS_OK) {
    own->is_given = false;
    require(own->deleted == 0, "a tensor that was refused is gone");
  }
  return status;
}

inline pinlane_status buffer_from_dlpack(frame& f) {
  const argument device = f.any(kind::device);
  const int number = f.w.device_of(kind::device, device);
  if (f.in.rarely(8)) {
    f.must_fail = true;
    return pinlane_buffer_from_dlpack(device, nullptr, f.made<pinlane_buffer>(kind::buffer));
  }
  const bool again = f.in.byte() % 2 == 0;
  // Memory of type kDLCUDAHost is page-locked on the machine of its pool only.
  const auto taken = again ? take_tensor(f, [&](const tensor& each) {
    return each.versioned != nullptr && each.is_on_host && number >= 0 && each.device >= 0 &&
           machine_of(each.device) == machine_of(number);
  })
                           : nullptr;
  object about;
  about.was_tensor = true;
  if (taken != nullptr) {
    const bool is_locked = taken->view().place.type == dl_cuda_host;
    f.must_fail |= taken->is_read_only || taken->has_gaps;
    f.must_fail |= !is_locked && !taken->bytes.empty(); // its pages are page-locked already
    about.bytes = taken->bytes;
    about.made_of = taken->made_of;
    about.device = taken->device;
    auto** const out = f.made<pinlane_buffer>(kind::buffer);
    f.made_as(std::move(about));
    const pinlane_status status = pinlane_buffer_from_dlpack(device, taken->versioned, out);
    if (status != PINLANE_STATUS_OK) {
      put_tensor(f, taken);
    }
    return status;
  }
  const std::shared_ptr<own_tensor> own = make_host_tensor(f);
  about.made_of = own;
  about.device = number;
  const std::uint8_t* const first = own->memory.get() + own->at;
  about.bytes.assign(first, first + own->bytes);
  auto** const out = f.made<pinlane_buffer>(kind::buffer);
  f.made_as(std::move(about));
  return give_own(own, [&](own_tensor* given) {
    return pinlane_buffer_from_dlpack(device, &given->versioned, out);
  });
}

inline pinlane_status device_buffer_from_dlpack(frame& f) {
  argument stream = f.any(kind::stream);
  int number = f.w.device_of(kind::stream, stream);
  const bool again = f.in.byte() % 2 == 0;
  // A place says the number of a device, and not its machine.
  const auto taken = again ? take_tensor(f, [&](const tensor& each) {
    return each.versioned != nullptr && !each.is_on_host && number >= 0 && each.device >= 0 &&
           machine_of(each.device) == machine_of(number) &&
           f.w.find(kind::stream, each.consumer) != nullptr;
  })
                           : nullptr;
  if (taken != nullptr) {
    stream = argument{const_cast<void*>(taken->consumer)};
    number = f.w.device_of(kind::stream, stream);
  }
  object about;
  about.device = number;
  about.was_tensor = true;
  auto** const out = f.made<pinlane_device_buffer>(kind::gpu);
  if (taken != nullptr) {
    // The stream must come behind the one that the tensor was made for.
    if (taken->ready == nullptr || pinlane_stream_wait(stream, taken->ready) != 0) {
      put_tensor(f, taken);
      f.must_fail = false;
      f.made_nothing();
      return PINLANE_STATUS_OK;
    }
    f.must_fail |= taken->is_read_only || taken->has_gaps || taken->device != number;
    about.bytes = taken->bytes;
    about.off = taken->off;
    about.made_of = taken->made_of;
    f.made_as(std::move(about));
    const pinlane_status status =
        pinlane_device_buffer_from_dlpack(stream, taken->versioned, out);
    if (status != PINLANE_STATUS_OK) {
      put_tensor(f, taken);
    }
    return status;
  }
  std::uint8_t* const memory = number == 0 ? part_to_lend(f.w) : nullptr;
  if (memory == nullptr) {
    f.must_fail = true;
    return pinlane_device_buffer_from_dlpack(stream, nullptr, out);
  }
  const bool failed = std::exchange(f.must_fail, false);
  const std::int32_t place = f.in.rarely(8) ? dl_cuda : dl_extension;
  const auto own = make_tensor(f, memory, f.in.below(lent_part_bytes), {place, 0});
  f.must_fail |= failed || place != dl_extension;
  about.made_of = own;
  about.bytes.assign(own->bytes, unknown);
  f.made_as(std::move(about));
  return give_own(own, [&](own_tensor* given) {
    return pinlane_device_buffer_from_dlpack(stream, &given->versioned, out);
  });
}

// -- The older form ------------------------------------------------------------------------------

inline pinlane_status dlpack_to_legacy(frame& f) {
  auto** const out = f.out<DLManagedTensor*>();
  const auto taken = take_tensor(f, [](const tensor& each) { return each.versioned != nullptr; });
  if (taken != nullptr) {
    f.must_fail |= taken->is_read_only;
    const pinlane_status status = pinlane_dlpack_to_legacy(taken->versioned, out);
    if (status == PINLANE_STATUS_OK) {
      taken->versioned = nullptr;
      taken->legacy = *out;
    }
    put_tensor(f, taken);
    return status;
  }
  if (f.in.byte() % 4 == 0) {
    f.must_fail = true;
    return pinlane_dlpack_to_legacy(nullptr, out);
  }
  const bool failed = f.must_fail;
  const std::shared_ptr<own_tensor> own = make_host_tensor(f);
  // It looks at nothing but the version and the flags.
  const std::uint64_t flags = own->versioned.flags;
  f.must_fail = failed || own->versioned.version.major != 1 || (flags & ~dl_copied) != 0;
  const pinlane_status status = give_own(own, [&](own_tensor* given) {
    return pinlane_dlpack_to_legacy(&given->versioned, out);
  });
  if (status == PINLANE_STATUS_OK) {
    (*out)->deleter(*out);
    require(own->deleted == 1, "the deleter of a tensor was not called");
  }
  return status;
}

inline pinlane_status dlpack_from_legacy(frame& f) {
  auto** const out = f.out<DLManagedTensorVersioned*>();
  const auto taken = take_tensor(f, [](const tensor& each) { return each.legacy != nullptr; });
  if (taken != nullptr) {
    const pinlane_status status = pinlane_dlpack_from_legacy(taken->legacy, out);
    if (status == PINLANE_STATUS_OK) {
      taken->legacy = nullptr;
      taken->versioned = *out;
    }
    put_tensor(f, taken);
    return status;
  }
  if (f.in.byte() % 4 == 0) {
    f.must_fail = true;
    return pinlane_dlpack_from_legacy(nullptr, out);
  }
  const bool failed = f.must_fail;
  const std::shared_ptr<own_tensor> own = make_host_tensor(f);
  f.must_fail = failed; // it looks at nothing
  const pinlane_status status = give_own(own, [&](own_tensor* given) {
    return pinlane_dlpack_from_legacy(&given->legacy, out);
  });
  if (status == PINLANE_STATUS_OK) {
    (*out)->deleter(*out);
    require(own->deleted == 1, "the deleter of a tensor was not called");
  }
  return status;
}

/// In the end the library has given everything back.
inline void check_tensors(const world& w) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (const std::shared_ptr<own_tensor>& each : w.own_tensors) {
    while (each->is_given && each->deleted == 0 && !w.faulty && !w.may_keep) {
      require(std::chrono::steady_clock::now() < limit, "a tensor was not given back");
      std::this_thread::yield();
    }
  }
}
