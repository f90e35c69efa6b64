// How an op is called: every thread of the team calls it with the same words, and does its own share of the work.
//
// One parallel region runs a whole step, op by op, with a barrier after each. An op that needs another one inside calls
// `wait`, by all threads alike.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lorikeet {

// One argument of an op: a number or an address.
union Word {
    int64_t n;
    double f;
    void* p;
};

inline int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

class Barrier {
   public:
    void wait(int64_t n_threads) {
        const int64_t round = round_.load(std::memory_order_relaxed);
        if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads) {
            waiting_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int64_t spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
            if (spins < PATIENCE)
                pause();
            else
                sched_yield();  // the thread that is missing may need this core
        }
    }

   private:
    static constexpr int64_t PATIENCE = 4096;
    static void pause() {
#if defined(__x86_64__)
        _mm_pause();
#endif
    }
    alignas(64) std::atomic<int64_t> waiting_{0};
    alignas(64) std::atomic<int64_t> round_{0};
};

struct Team {
    int64_t thread, n_threads;
    Barrier* barrier;

    void wait() const {
        if (n_threads > 1) barrier->wait(n_threads);
    }

    // This thread's part [begin, end) of `count` equal units.
    void share(int64_t count, int64_t& begin, int64_t& end) const {
        begin = count * thread / n_threads;
        end = count * (thread + 1) / n_threads;
    }
};

// Memory that the threads of a team have in common; what it holds is gone at the next call.
template <typename T>
class Scratch {
   public:
    T* get(const Team& team, int64_t count) {
        if (team.thread == 0 && int64_t(values_.size()) < count) values_.resize(count);
        team.wait();
        return values_.data();
    }

   private:
    std::vector<T> values_;
};

}  // namespace lorikeet
