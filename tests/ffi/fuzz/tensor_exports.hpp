// Buffers as tensors.

#pragma once

#include "tensors.hpp"

/// The requested layout of a tensor of a buffer.
struct some_layout {
  const pinlane_dlpack_options* options;
  std::size_t at = 0, bytes = 0;
  bool has_gaps = false, is_read_only = false;
};

/// Whether the elements lie within `size` bytes. `count` gets their number.
inline bool is_layout(const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& strides, dl_type type, std::size_t at,
                      std::size_t size, std::size_t& count) {
  const std::size_t element = element_bits(type);
  // Numbers that are far too large need not be exact.
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
  // Arrays of 0 elements have an address too, because NULL has another meaning.
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

/// Records that the buffer is now a tensor.
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

/// Whether the program has enough tensors.
inline bool has_enough_tensors(world& w) {
  const std::lock_guard<std::mutex> guard(w.lock);
  return w.tensors.size() >= 12;
}

/// The stream on which a tensor is used. Any thread must be able to use it.
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
  if (is_borrowed) { // the owner of the memory would not know of its uses
    f.must_fail = false;
    return PINLANE_STATUS_OK;
  }
  const pinlane_status status = pinlane_device_buffer_into_dlpack(buffer, layout.options, out);
  if (status == PINLANE_STATUS_OK) {
    exported(f, kind::gpu, buffer, layout, *out);
  }
  return status;
}
