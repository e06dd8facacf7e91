// Plans by shape, the least recently used ones forgotten.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "plan.h"

namespace msaccel {

using Key = std::vector<int64_t>;

// A ResNet-50 needs 160 plans for training and evaluation; one takes some 100 KB.
class Cache {
  public:
    // The plan of a key, made by `make` if there is none. Whoever runs a plan shares it, so one that is forgotten
    // meanwhile lives until it has run. Two threads that miss at the same time wait for each other.
    template <typename Make>
    std::shared_ptr<const Plan> get(const Key& key, Make make) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = places_.find(key);
        if (found != places_.end()) {
            recent_.splice(recent_.begin(), recent_, found->second);
            return recent_.front().second;
        }
        std::shared_ptr<const Plan> plan = make();
        recent_.emplace_front(key, plan);
        places_[key] = recent_.begin();
        shrink();
        return plan;
    }

    void limit(size_t capacity) {
        std::lock_guard<std::mutex> lock(mutex_);
        capacity_ = capacity;
        shrink();
    }

    size_t size() {
        std::lock_guard<std::mutex> lock(mutex_);
        return recent_.size();
    }

  private:
    void shrink() {
        for (; recent_.size() > capacity_; recent_.pop_back()) places_.erase(recent_.back().first);
    }

    using Entry = std::pair<Key, std::shared_ptr<const Plan>>;
    std::mutex mutex_;
    std::list<Entry> recent_;
    std::map<Key, std::list<Entry>::iterator> places_;
    size_t capacity_ = 512;
};

inline Cache& cache() {
    static Cache* plans = new Cache;
    return *plans;
}

}  // namespace msaccel
