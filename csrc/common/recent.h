// What was worked out for the last keys, for one thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace memops {

template <class Key, class Value, std::size_t kMost>
class Recent {
 public:
  /// The value of `key`; `make()` where it is not among the last `kMost` that were made.
  template <class Make>
  const Value& get(const Key& key, Make&& make) {
    for (const auto& entry : entries_) {
      if (entry && entry->first == key) return entry->second;
    }
    auto& entry = entries_[next_];
    next_ = (next_ + 1) % kMost;
    return entry.emplace(key, make()).second;
  }

 private:
  std::array<std::optional<std::pair<Key, Value>>, kMost> entries_;
  std::size_t next_ = 0;
};

}  // namespace memops
