// Tensors as buffers, and tensors in the form of DLPack 0.

#pragma once

#include "tensors.hpp"

/// A tensor of the program's own memory, with at most one error.
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
  // Device memory stays aligned, because checksums need that.
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
  const std::size_t room = own->room = bytes - ahead;
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
    case 8: // it wraps, or lies beyond all memory
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
      own->strides.back() = 0; // the same element again, also for an import with strides
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

/// A tensor in the program's own host memory.
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

/// Passes a tensor to `call(tensor)`, and records its new owner.
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

/// A tensor that is only read. The buffer goes again at once, as one of memory that is only read.
inline pinlane_status buffer_from_dlpack_read_only(frame& f) {
  const argument device = f.any(kind::device);
  const bool failed = f.must_fail;
  const std::shared_ptr<own_tensor> own = make_host_tensor(f);
  if ((own->versioned.flags & dl_read_only) != 0) {
    f.must_fail = failed; // no error here
  }
  auto** const out = f.out<pinlane_buffer*>();
  const pinlane_status status = give_own(own, [&](own_tensor* given) {
    return pinlane_buffer_from_dlpack_read_only(device, &given->versioned, out);
  });
  if (status == PINLANE_STATUS_OK) {
    void* data = nullptr;
    require(pinlane_buffer_write(*out, &data) != PINLANE_STATUS_OK && data == nullptr,
            "a tensor that is only read is written");
    require(pinlane_buffer_free(*out) == PINLANE_STATUS_OK, "a tensor's buffer is not freed");
  }
  return status;
}

inline pinlane_status device_buffer_from_dlpack(frame& f) {
  argument stream = f.any(kind::stream);
  int number = f.w.device_of(kind::stream, stream);
  const bool again = f.in.byte() % 2 == 0;
  // A tensor's place has the number of a device, but not its machine.
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
    // The stream must wait for the one that the tensor was made for.
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
  // It checks only the version and the flags.
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
  f.must_fail = failed; // it checks nothing
  const pinlane_status status = give_own(own, [&](own_tensor* given) {
    return pinlane_dlpack_from_legacy(&given->legacy, out);
  });
  if (status == PINLANE_STATUS_OK) {
    (*out)->deleter(*out);
    require(own->deleted == 1, "the deleter of a tensor was not called");
  }
  return status;
}
