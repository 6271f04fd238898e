// Other libraries that use our memory, or pass us theirs, and release tensors anywhere, also in
// host functions, while their work has not run.

#pragma once

#include "tensors.hpp"

class libraries : protected tensors {
protected:
  using tensors::tensors;

  /// A release on the thread of the runtime, after the work of some stream.
  template <class Owned>
  void release_in_host_function(Owned owned) {
    const auto& stream = m_random.one_of(m_streams).stream;
    stream.launch_host([gone = std::move(owned)]() mutable noexcept { gone = Owned(); });
  }

  /// The same on an empty stream. Returns when it has run.
  template <class Owned>
  void release_at_once(Owned owned) {
    const pinlane::stream alone(m_random.one_of(m_devices));
    alone.launch_host([gone = std::move(owned)]() mutable noexcept { gone = Owned(); }).wait();
  }

  /// A tensor of another library. Its deleter may be called anywhere.
  struct managed {
    DLManagedTensorVersioned* tensor = nullptr;
    managed() = default;
    explicit managed(DLManagedTensorVersioned* one) : tensor(one) {}
    managed(managed&& other) noexcept : tensor(std::exchange(other.tensor, nullptr)) {}
    managed& operator=(managed&& other) noexcept {
      std::swap(tensor, other.tensor);
      return *this;
    }
    ~managed() {
      if (tensor != nullptr) {
        seen(tensor).deleter(tensor);
      }
    }
  };

  /// Device memory that a library uses on a stream, and releases before its work has run.
  void give_gpu_to_library() {
    if (m_gpus.size() < 2) {
      return;
    }
    gpu_buffer gone = std::move(m_gpus.back());
    m_gpus.pop_back();
    const pinlane::stream_ref consumer = stream_of(gone.device);
    if (gone.model.empty() || is_of_one_thread(consumer)) {
      return;
    }
    std::uint8_t* const address = gone.buffer.address();
    managed theirs(pinlane::into_dlpack(std::move(gone.buffer), consumer));
    m_libraries.push_back({m_pool.alloc<std::uint8_t>(gone.model.size()), gone.model});
    consumer.busy(std::chrono::microseconds(m_random.below(50)));
    consumer.download_from(address, m_libraries.back().first);
    switch (m_random.below(3)) {
    case 0:
      return release_in_host_function(std::move(theirs));
    case 1:
      return release_at_once(std::move(theirs));
    default:
      return;
    }
  }

  /// Page-locked memory that a library reads on a stream. The pool must not reuse it before that.
  void give_host_to_library() {
    const pinlane::stream_ref consumer = m_random.one_of(m_streams).stream;
    if (m_hosts.size() < 2 || !m_hosts.back().is_of_pool || is_of_one_thread(consumer)) {
      return;
    }
    host_buffer gone = std::move(m_hosts.back());
    m_hosts.pop_back();
    const std::uint8_t* const address = gone.buffer.address();
    managed theirs(pinlane::into_dlpack(std::move(gone.buffer), consumer));
    auto work = std::make_shared<reading>();
    m_readings.push_back(work);
    consumer.busy(std::chrono::microseconds(m_random.below(50)));
    consumer.launch_host([address, work, model = gone.model]() noexcept {
      work->is_right = std::equal(model.begin(), model.end(), address);
    });
    release_at_once(std::move(theirs));
    auto next = m_pool.alloc<std::uint8_t>(gone.model.size());
    const auto elements = next.write();
    std::fill(elements.begin(), elements.end(), std::uint8_t{0xee});
  }

  /// A library's device memory, whose buffer we release before our work has run. The deleter must
  /// not be called before our work is done.
  void take_from_library() {
    auto made = std::make_shared<device_tensor>();
    const std::size_t device = m_random.below(m_devices.size());
    const pinlane::stream_ref stream = stream_of(device);
    const std::size_t size = 1 + m_random.below(1000);
    auto memory = m_devices[device].alloc<std::uint8_t>(size);
    if (is_of_one_thread(stream)) {
      return;
    }
    made->theirs = managed(pinlane::into_dlpack(std::move(memory), stream));
    made->header = seen(made->theirs.tensor);
    made->header.context = new std::shared_ptr<device_tensor>(made);
    made->header.deleter = device_tensor::erase;
    m_device_tensors.push_back(made);
    auto buffer = pinlane::from_dlpack<std::uint8_t>(
        stream, reinterpret_cast<DLManagedTensorVersioned*>(&made->header));
    stream.launch_host([made]() noexcept { made->is_reached = true; });
    stream.fill(buffer, std::uint8_t{7});
    made->has_work = true;
    m_random.below(2) == 0 ? release_at_once(std::move(buffer))
                           : release_in_host_function(std::move(buffer));
  }

  /// Checks what libraries have read, and the deleted tensors.
  void check_given() {
    for (const device_stream& each : m_streams) {
      each.stream.synchronize();
    }
    for (const auto& [made, model] : m_tensors) {
      made->check(model);
    }
    for (const auto& work : m_readings) {
      require(work->is_right, "another library found other bytes");
    }
    for (const auto& made : m_device_tensors) {
      require(!made->is_early, "a tensor was deleted while the device used it");
    }
    for (auto& [buffer, model] : m_libraries) {
      const auto elements = buffer.read();
      require(std::equal(elements.begin(), elements.end(), model.begin(), model.end()),
              "another library read wrong bytes");
    }
  }

  std::vector<std::pair<pinlane::pinned_buffer<std::uint8_t>, bytes>> m_libraries;

private:
  struct reading {
    std::atomic<bool> is_right{true};
  };

  struct device_tensor {
    tensor header{};
    managed theirs;
    /// Whether there is work of ours, whether the stream has reached it, and whether the tensor was
    /// deleted before that.
    std::atomic<bool> has_work{false}, is_reached{false}, is_early{false};

    static void erase(DLManagedTensorVersioned* managed) {
      auto* const owner = static_cast<std::shared_ptr<device_tensor>*>(seen(managed).context);
      (*owner)->is_early = (*owner)->has_work && !(*owner)->is_reached;
      const libraries::managed gone = std::move((*owner)->theirs);
      delete owner;
    }
  };

  std::vector<std::shared_ptr<reading>> m_readings;
  std::vector<std::shared_ptr<device_tensor>> m_device_tensors;
};
