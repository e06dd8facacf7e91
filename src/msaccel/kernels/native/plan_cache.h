// A least-recently-used cache of plans by shape.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "plan.h"

namespace msaccel {

using Key = std::vector<int64_t>;

// ResNet-50 needs 160 plans for training and evaluation, of about 100 KB each.
class PlanCache {
  public:
    // The plan of a key, made by `make` if there is none. The caller shares ownership, so a plan that is evicted while
    // it runs stays alive. Threads that miss at the same time make their plans one after the other.
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

inline PlanCache& plan_cache() {
    static PlanCache* plans = new PlanCache;
    return *plans;
}

}  // namespace msaccel
