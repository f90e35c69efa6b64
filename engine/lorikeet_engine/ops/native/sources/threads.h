// The calling thread's place in its team, and the team's size, by the OpenMP runtime that torch brought.
#pragma once

#include <omp.h>

#include <cstdint>

namespace lorikeet {

inline void thread_index(int64_t& thread, int64_t& n_threads) {
    thread = omp_get_thread_num();
    n_threads = omp_get_num_threads();
}

inline int64_t most_threads() { return omp_get_max_threads(); }

}  // namespace lorikeet
