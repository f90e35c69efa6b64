// Runs ops one after another: each is its function's address, how many words it takes, and the words.
#include <omp.h>

#include <mutex>

#include "team.h"
#include "vec.h"

using namespace lorikeet;

using Op = void (*)(const Word*, const Team&);

LORIKEET_EXPORT void run(const Word* ops, int64_t n_ops) {
    static std::mutex one_at_a_time;  // ops keep their scratch in the process
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    Barrier barrier;
#pragma omp parallel
    {
        const Team team{omp_get_thread_num(), omp_get_num_threads(), &barrier};
        const Word* at = ops;
        for (int64_t i = 0; i < n_ops; ++i) {
            reinterpret_cast<Op>(at[0].p)(at + 2, team);
            at += 2 + at[1].n;
            team.wait();
        }
    }
}
