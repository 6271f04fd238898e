// Buffers as tensors of other libraries and back, and tensors of the program's own, with elements
// of every width.

#pragma once

#include "parts.hpp"

#include <atomic>
#include <memory>

/// The struct of DLPack, as its specification has it.
struct tensor {
  std::uint32_t version[2];
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  void* data;
  std::int32_t device_type, device_id, ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};

inline tensor& seen(DLManagedTensorVersioned* managed) {
  return *reinterpret_cast<tensor*>(managed);
}

/// A type of elements, and the bytes of a number of them: packed, unless they are padded.
struct element_type {
  std::uint8_t code, bits;
  std::uint16_t lanes;
  bool padded;

  [[nodiscard]] std::size_t bytes_of(std::size_t count) const {
    const std::size_t width = std::size_t{bits} * lanes;
    return padded ? count * ((width + 7) / 8) : (count * width + 7) / 8;
  }
  [[nodiscard]] std::size_t most_in(std::size_t bytes) const {
    return padded ? bytes / bytes_of(1) : bytes * 8 / (std::size_t{bits} * lanes);
  }
};

/// The program's own tensor in host memory, with other bytes around it. It lives until it is no
/// longer used.
struct own_tensor {
  static constexpr std::size_t around = 64;

  tensor header{};
  std::int64_t shape[2], strides[2];
  bytes memory;
  std::size_t size;
  /// The contents of the memory when the tensor was deleted: from then on the host owns it again.
  bytes at_deletion;
  std::atomic<bool> is_deleted{false};

  static void erase(DLManagedTensorVersioned* managed) {
    auto& self = **static_cast<std::shared_ptr<own_tensor>*>(seen(managed).context);
    self.at_deletion = self.memory;
    std::fill(self.memory.begin(), self.memory.end(), std::uint8_t{0x5a});
    self.is_deleted = true;
    delete static_cast<std::shared_ptr<own_tensor>*>(seen(managed).context);
  }

  /// Checks that nothing was written beside the tensor, or to it after its deletion.
  void check(const bytes& model) const {
    const bytes& held = is_deleted ? at_deletion : memory;
    const auto begin = held.begin() + std::ptrdiff_t{around};
    require(std::all_of(held.begin(), begin, [](std::uint8_t it) { return it == 0xc3; }) &&
                std::all_of(begin + std::ptrdiff_t(size), held.end(),
                            [](std::uint8_t it) { return it == 0xc3; }),
            "something was written beside a tensor");
    require(!is_deleted || std::all_of(memory.begin(), memory.end(),
                                       [](std::uint8_t it) { return it == 0x5a; }),
            "something was written to a tensor that was deleted");
    require(!is_deleted || std::equal(model.begin(), model.end(), begin),
            "a tensor was deleted before it had its bytes");
  }
};

class tensors : protected part_copies {
protected:
  using part_copies::part_copies;

  /// Whether it is a per-thread default stream, which other libraries cannot use.
  static bool is_of_one_thread(pinlane::stream_ref stream) {
    return stream.native_handle() == reinterpret_cast<void*>(std::uintptr_t{2});
  }

  element_type some_type() {
    const std::uint8_t wide[] = {16, 32, 64};
    const auto bits =
        std::uint8_t(m_random.below(4) == 0 ? wide[m_random.below(3)] : 1 + m_random.below(8));
    const auto lanes = std::uint16_t(m_random.below(3) == 0 ? 1 + m_random.below(5) : 1);
    return {std::uint8_t(m_random.below(2)), bits, lanes, false};
  }

  /// Exports a buffer, all of it or a part, and imports the tensor.
  template <class Buffer, class Export, class Import>
  void there_and_back(Buffer& buffer, bytes& model, const pinlane_stream* consumer, Export into,
                      Import from) {
    const element_type type = some_type();
    pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
    options.code = type.code;
    options.bits = type.bits;
    options.lanes = type.lanes;
    options.device_type = PINLANE_DLPACK_CUDA_HOST; // otherwise it would be page-locked again
    options.stream = consumer;
    const bool is_whole = type.bits * type.lanes % 8 == 0;
    std::int64_t shape[2];
    std::size_t offset = 0, count = type.most_in(model.size());
    if (m_random.below(3) != 0) {
      offset = m_random.below(model.size() + 1);
      offset -= is_whole ? offset % type.bytes_of(1) : 0;
      count = m_random.below(type.most_in(model.size() - offset) + 1);
      shape[0] = std::int64_t(m_random.below(3) + 1);
      shape[1] = std::int64_t(count) / shape[0];
      count = std::size_t(shape[0] * shape[1]);
      options.shape = shape;
      options.ndim = 2;
      options.offset_bytes = offset;
    }
    DLManagedTensorVersioned* managed = nullptr;
    pinlane::detail::check(into(buffer.get(), &options, &managed));
    static_cast<void>(buffer.release());
    auto* handle = from(managed);
    buffer = Buffer::adopt(handle);
    require(buffer.size() == type.bytes_of(count), "a tensor came back with another size");
    model = bytes(model.begin() + std::ptrdiff_t(offset),
                  model.begin() + std::ptrdiff_t(offset + buffer.size()));
  }

  void host_as_tensor(host_buffer& host) {
    if (!host.is_of_pool) {
      return; // the memory is the program's own already, or came from a tensor
    }
    const auto& device = m_devices.front();
    there_and_back(host.buffer, host.model, nullptr, pinlane_buffer_into_dlpack,
                   [&](DLManagedTensorVersioned* managed) {
                     pinlane_buffer* handle = nullptr;
                     pinlane::detail::check(
                         pinlane_buffer_from_dlpack(device.get(), managed, &handle));
                     return handle;
                   });
    host.is_of_pool = false;
  }

  void gpu_as_tensor() {
    gpu_buffer& gpu = m_random.one_of(m_gpus);
    const pinlane::stream_ref stream = stream_of(gpu.device);
    if (is_of_one_thread(stream)) {
      return;
    }
    there_and_back(gpu.buffer, gpu.model, stream.get(), pinlane_device_buffer_into_dlpack,
                   [&](DLManagedTensorVersioned* managed) {
                     pinlane_device_buffer* handle = nullptr;
                     pinlane::detail::check(
                         pinlane_device_buffer_from_dlpack(stream.get(), managed, &handle));
                     return handle;
                   });
  }

  /// A buffer made of a tensor in the program's own memory, as another library would pass it.
  void import_own() {
    if (m_hosts.size() >= most_buffers) {
      return;
    }
    element_type type = some_type();
    type.padded = type.bits < 8 && m_random.below(3) == 0;
    auto made = std::make_shared<own_tensor>();
    made->shape[0] = std::int64_t(m_random.below(5) + 1);
    made->shape[1] = std::int64_t(m_random.below(200));
    made->size = type.bytes_of(std::size_t(made->shape[0] * made->shape[1]));
    // Rows with gaps, of elements that have their own bytes. The gaps belong to the buffer.
    const bool has_rows = (type.padded || type.bits * type.lanes % 8 == 0) && made->shape[1] > 0 &&
                          m_random.below(2) == 0;
    made->strides[0] = made->shape[1] + std::int64_t(has_rows ? m_random.below(20) : 0);
    made->strides[1] = 1;
    if (has_rows) {
      made->size =
          type.bytes_of(std::size_t((made->shape[0] - 1) * made->strides[0] + made->shape[1]));
    }
    const std::size_t around = own_tensor::around;
    made->memory = bytes(made->size + 2 * around, 0xc3);
    const bytes model = some_bytes(made->size);
    std::copy(model.begin(), model.end(), made->memory.begin() + std::ptrdiff_t(around));
    tensor& header = made->header;
    header.version[0] = 1;
    header.version[1] = 1;
    header.context = new std::shared_ptr<own_tensor>(made);
    header.deleter = own_tensor::erase;
    header.flags = type.padded ? 4 : 0;
    header.data = made->memory.data();
    header.byte_offset = around;
    header.device_type = PINLANE_DLPACK_CPU;
    header.ndim = 2;
    header.code = type.code;
    header.bits = type.bits;
    header.lanes = type.lanes;
    header.shape = made->shape;
    header.strides = has_rows ? made->strides : nullptr;
    pinlane_buffer* handle = nullptr;
    pinlane_strided rows{};
    auto* const managed = reinterpret_cast<DLManagedTensorVersioned*>(&header);
    const pinlane_device* const device = m_random.one_of(m_devices).get();
    const pinlane_status status =
        has_rows ? pinlane_buffer_from_dlpack_strided(device, managed, &handle, &rows)
                 : pinlane_buffer_from_dlpack(device, managed, &handle);
    if (status != PINLANE_STATUS_OK) {
      own_tensor::erase(managed);
      pinlane::detail::check(status);
    }
    auto buffer = pinlane::pinned_buffer<std::uint8_t>::adopt(handle);
    require(buffer.size() == made->size, "a tensor has another size as a buffer");
    const std::size_t row = type.bytes_of(std::size_t(made->shape[1]));
    const bool is_one = made->shape[0] == 1 || made->strides[0] == made->shape[1];
    require(!has_rows || (rows.planes == 1 &&
                          rows.row_bytes * rows.rows == row * std::size_t(made->shape[0]) &&
                          (is_one || rows.pitch == type.bytes_of(std::size_t(made->strides[0])))),
            "a tensor has other rows");
    m_hosts.push_back({{}, std::move(buffer), model, made, false});
  }
};
