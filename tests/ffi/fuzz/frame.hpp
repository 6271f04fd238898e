// One call: how its arguments are chosen, and what must hold when it returns.

#pragma once

#include "memory.hpp"

/// An argument of any pointer type.
struct argument {
  void* value;
  template <class T>
  operator T*() const {
    return static_cast<T*>(value);
  }
};

/// Parts of equal length of two things.
struct part {
  std::size_t from, to, bytes;
};

/// Whether `bytes` from `at` on lie within `size`.
inline bool lies_within(std::size_t at, std::size_t bytes, std::size_t size) {
  return at <= size && bytes <= size - at;
}

class frame {
public:
  frame(world& of, input& from, scratch& memory, unsigned level)
      : w(of), in(from), depth(level), pageable(memory.pageable), m_zones(memory) {}

  world& w;
  input& in;
  /// The depth of callbacks around the call.
  unsigned depth;
  /// The call has an argument that it must refuse.
  bool must_fail = false;
  /// The call may be refused for reasons that the model does not know.
  bool may_refuse = false;
  /// The library itself may be using the call's objects.
  bool may_be_busy = false;
  /// Pageable memory of this thread's calls.
  std::array<std::uint8_t, 49152>& pageable;

  /// A handle: mostly a live one of this kind, sometimes one that the call must refuse.
  argument any(kind which) {
    const bool failed = std::exchange(must_fail, false);
    const argument chosen = live_or_wrong(which);
    if (must_fail) {
      m_wrong_handle = chosen.value;
    }
    must_fail |= failed;
    return chosen;
  }

private:
  argument live_or_wrong(kind which) {
    const std::size_t choice = in.byte();
    const std::lock_guard<std::mutex> guard(w.lock);
    const std::vector<object>& all = w.live(which);
    if (choice < 236 && !all.empty()) {
      return {all[choice % all.size()].handle};
    }
    must_fail = true;
    const auto other = static_cast<kind>((static_cast<std::size_t>(which) + 1 + choice) % kinds);
    switch (choice % 4) {
    case 0:
      if (!w.stale(which).empty()) {
        return {w.stale(which)[choice / 4 % w.stale(which).size()]};
      }
      break;
    case 1:
      if (other != which && !w.live(other).empty()) {
        return {w.live(other).front().handle};
      }
      break;
    case 2:
      // A live handle with one bit changed, but not the next handle of its slot.
      if (!all.empty()) {
        const auto bits = reinterpret_cast<std::uintptr_t>(all.front().handle);
        const unsigned bit = in.byte() % 24;
        return {
            reinterpret_cast<void*>(bits ^ std::uintptr_t{1} << (bit < 8 ? 24 + bit : 32 + bit))};
      }
      break;
    default:
      break;
    }
    return {nullptr};
  }

public:
  /// As `any`, or NULL, which the call accepts.
  argument or_null(kind which) {
    if (in.rarely(24)) {
      return {nullptr};
    }
    const bool failed = must_fail;
    const argument chosen = any(which);
    must_fail = chosen.value == nullptr ? failed : must_fail;
    return chosen;
  }

  /// A size for memory of a pool or a device.
  std::size_t size() {
    switch (in.below(16)) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return SIZE_MAX - in.byte();
    case 3:
      return std::size_t{PTRDIFF_MAX} + in.byte();
    case 4:
      return std::size_t{1} << 46; // more than any machine has
    case 5:
      return 4096 + in.byte() % 3 - 1;
    case 6:
      return 65536;
    case 7:
      return 200000;
    default:
      return in.below(5000);
    }
  }

  /// A length that no memory has.
  std::size_t impossible_size() {
    return in.byte() % 2 == 0 ? SIZE_MAX : std::size_t{PTRDIFF_MAX} + 1;
  }

  /// Parts of two things of these sizes; sometimes outside of one.
  part any_part(std::size_t from_size, std::size_t to_size) {
    part chosen{};
    if (in.rarely(12)) {
      const std::size_t strange[] = {
          0, 1, from_size, to_size, from_size + 1, SIZE_MAX, std::size_t{PTRDIFF_MAX} + 1};
      chosen.from = strange[in.below(7)];
      chosen.to = strange[in.below(7)];
      chosen.bytes = strange[in.below(7)];
    } else {
      chosen.bytes =
          in.rarely(64) ? std::min(from_size, to_size) : in.below(std::min(from_size, to_size) + 1);
      chosen.from = in.below(from_size - chosen.bytes + 1);
      chosen.to = in.below(to_size - chosen.bytes + 1);
    }
    return chosen;
  }

  /// Parts of two things, which the call must refuse if they lie outside.
  part some_part(std::size_t from_size, std::size_t to_size) {
    const part chosen = any_part(from_size, to_size);
    must_fail |= !lies_within(chosen.from, chosen.bytes, from_size);
    must_fail |= !lies_within(chosen.to, chosen.bytes, to_size);
    return chosen;
  }

  /// A part of one thing, at `to`.
  part some_part(std::size_t size) {
    part chosen = any_part(size, size);
    chosen.from = 0;
    must_fail |= !lies_within(chosen.to, chosen.bytes, size);
    return chosen;
  }

  /// The call must refuse a stream and a buffer of two devices.
  void on_one_device(const void* stream, const void* gpu) {
    const int one = w.device_of(kind::stream, stream), other = w.device_of(kind::gpu, gpu);
    must_fail |= one >= 0 && other >= 0 && one != other;
  }

  // Memory that the call gets

  /// A place for a `T`: sometimes none, sometimes a misaligned one. Both are refused.
  template <class T>
  T* out() {
    T* const place = optional_out<T>();
    must_fail |= place == nullptr;
    return place;
  }

  /// A place for a `T`, or NULL, which the call accepts; sometimes a misaligned one.
  template <class T>
  T* optional_out() {
    const std::uint8_t choice = in.byte();
    if (choice >= 252) {
      return nullptr;
    }
    const std::size_t off = choice >= 248 && alignof(T) > 1 ? 1 + choice % (alignof(T) - 1) : 0;
    must_fail |= off != 0;
    return static_cast<T*>(static_cast<void*>(m_zones.add(sizeof(T) + off, true) + off));
  }

  /// A place for a struct whose first member is its size, which is mostly right.
  template <class T>
  T* sized_out() {
    T* const place = out<T>();
    const std::size_t size = wrong_or(sizeof(T));
    if (place != nullptr) {
      m_zones.fill(place, &size, sizeof size);
    }
    return place;
  }

  /// A place for text. NULL is accepted with a capacity of 0.
  char* text_out(std::size_t& capacity) {
    capacity = in.below(in.rarely(32) ? 8192 : 64);
    if (in.rarely(8)) {
      must_fail |= capacity > 0;
      return nullptr;
    }
    return reinterpret_cast<char*>(m_zones.add(capacity, true));
  }

  /// A struct of options, whose size is mostly right; sometimes none, sometimes a misaligned one.
  template <class T>
  const T* options(T value) {
    const std::uint8_t choice = in.byte();
    if (choice >= 250) {
      return nullptr;
    }
    value.size = wrong_or(sizeof(T));
    const std::size_t off = choice >= 247 ? 4 : 0;
    must_fail |= off != 0;
    return static_cast<const T*>(m_zones.input_of(&value, sizeof value, off));
  }

  /// An array that the call reads.
  template <class T>
  const T* array(const std::vector<T>& values) {
    if (values.empty() && in.byte() % 2 == 0) {
      return nullptr;
    }
    return static_cast<const T*>(m_zones.input_of(values.data(), values.size() * sizeof(T), 0));
  }

  /// A place for a handle, which belongs to the program if the call succeeds.
  template <class T>
  T** made(kind which, object about = {}, std::size_t bytes = 0, std::int16_t byte = unknown) {
    T** const place = out<T*>();
    m_made = {which, place, std::move(about), bytes, byte};
    return place;
  }

  /// A place for a ticket, which is not always wanted.
  pinlane_ticket** ticket() {
    pinlane_ticket** const place = optional_out<pinlane_ticket*>();
    m_made = {kind::ticket, place, {}, 0, unknown};
    return place;
  }

  /// A place for a request, which is not always wanted.
  pinlane_request** request(object about) {
    pinlane_request** const place = optional_out<pinlane_request*>();
    m_made = {kind::request, place, std::move(about), 0, unknown};
    return place;
  }

  /// The call makes no handle, whatever it returns.
  void made_nothing() { m_made.place = nullptr; }

  /// Records what is known of the handle that the call has made.
  void made_as(object about) {
    m_made.bytes = about.bytes.size();
    m_made.about = std::move(about);
    m_made.byte = as_it_is;
  }

  // What the model learns

  /// Frees a handle in the model, if the call did.
  void freed(pinlane_status status, kind which, argument handle) {
    if (status == PINLANE_STATUS_OK && handle.value != nullptr) {
      const object gone = w.remove(which, handle.value);
      if (gone.lent != nullptr) {
        compare(gone.bytes, 0, gone.lent.get() + gone.lent_at, gone.bytes.size());
      }
    }
  }

  /// The bytes of a buffer as far as they are known; unknown bytes if it is not live.
  contents known(kind which, const void* handle, std::size_t at, std::size_t bytes) {
    const object* const found = w.threaded ? nullptr : w.find(which, handle);
    if (found == nullptr || !lies_within(at, bytes, found->bytes.size())) {
      return contents(lies_within(at, bytes, std::size_t{1} << 20) ? bytes : 0, unknown);
    }
    const auto first = found->bytes.begin() + static_cast<std::ptrdiff_t>(at);
    return contents(first, first + static_cast<std::ptrdiff_t>(bytes));
  }

  /// Records that the call was to write `bytes` to a buffer. If it fails, the contents are
  /// unspecified only if there was a fault of the machine.
  void wrote(pinlane_status status, kind which, const void* handle, std::size_t at,
             const contents& bytes) {
    object* const found = w.threaded ? nullptr : w.find(which, handle);
    if (found == nullptr || !lies_within(at, bytes.size(), found->bytes.size()) ||
        (status != PINLANE_STATUS_OK && !w.faulty)) {
      return;
    }
    for (std::size_t index = 0; index < bytes.size(); ++index) {
      const bool certain = status == PINLANE_STATUS_OK && !w.lossy;
      found->bytes[at + index] = certain ? bytes[index] : unknown;
    }
  }

  /// Checks memory against the model from `at` on.
  void compare(const contents& model, std::size_t at, const std::uint8_t* memory,
               std::size_t bytes) const {
    if (w.lossy || w.threaded) {
      return;
    }
    for (std::size_t index = 0; index < bytes; ++index) {
      const std::int16_t wanted = model[at + index];
      if (wanted != unknown && wanted != memory[index]) {
        std::fprintf(stderr, "byte %zu of %zu is %d, not %d\n", index, bytes, memory[index],
                     wanted);
        violated("wrong bytes");
      }
    }
  }

  // The end of the call

  /// Checks what must hold after every call.
  void finish(pinlane_status status) {
    const bool ok = status == PINLANE_STATUS_OK;
    require(std::strcmp(pinlane_status_name(status), "PINLANE_STATUS_UNKNOWN") != 0,
            "a status without a name");
    require(status != PINLANE_STATUS_PANIC, "a panic");
    if (ok && must_fail) {
      std::fprintf(stderr, "the last wrong handle is %p\n", m_wrong_handle);
      violated("a wrong argument was accepted");
    }
    if (!ok) {
      const bool excused = must_fail || may_refuse || w.faulty;
      const bool handle = status == PINLANE_STATUS_INVALID_HANDLE;
      const bool argument = handle || status == PINLANE_STATUS_OUT_OF_RANGE ||
                            status == PINLANE_STATUS_LENGTH_MISMATCH ||
                            status == PINLANE_STATUS_INVALID_VALUE;
      require(!argument || excused || (handle && w.threaded), "right arguments were refused");
      const bool shared = w.threaded || w.faulty || depth > 0 || may_be_busy ||
                          !w.live(kind::foreign).empty() || !w.live(kind::capture).empty() ||
                          !w.live(kind::graph).empty();
      require(status != PINLANE_STATUS_BUSY || shared, "busy, but nothing else is in use");
      const bool cuda = status == PINLANE_STATUS_CUDA;
      require(!cuda || excused || w.captured, "an error of CUDA without a cause");
      const bool lost = status == PINLANE_STATUS_DEVICE_LOST;
      require(!lost || w.lossy, "a device was lost");
      const char* const message = pinlane_last_error();
      require(std::strncmp(message, current_call, std::strlen(current_call)) == 0,
              "the message does not begin with the call");
      require(std::strstr(message, "::") == nullptr, "the message names something of Rust");
    }
    m_zones.check(ok);
    if (ok && m_made.place != nullptr) {
      std::memcpy(&m_made.about.handle, m_made.place, sizeof(void*));
      if (m_made.byte != as_it_is) {
        m_made.about.bytes.assign(m_made.bytes, m_made.byte);
      }
      w.adopt(m_made.which, std::move(m_made.about));
    }
  }

private:
  /// The contents of the new object are in `about`.
  static constexpr std::int16_t as_it_is = -2;

  struct pending {
    kind which = kind::ticket;
    void* place = nullptr;
    object about;
    std::size_t bytes = 0;
    std::int16_t byte = unknown;
  };

  std::size_t wrong_or(std::size_t right) {
    if (!in.rarely(10)) {
      return right;
    }
    must_fail = true;
    const std::size_t wrong[] = {0, right - 1, right + 1, right / 2, right * 2, SIZE_MAX};
    return wrong[in.below(6)];
  }

  zones m_zones;
  const void* m_wrong_handle = nullptr;
  pending m_made;
};
