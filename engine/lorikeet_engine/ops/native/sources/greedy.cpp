// The first of the largest logits of each row, and whether it is finite; the first NaN counts as the largest.
#include <cmath>

#include "team.h"
#include "vec.h"

namespace lorikeet {
namespace {

struct Best {
    float value;
    int64_t index;
};

inline bool beats(const Best& a, const Best& b) {
    if (a.index < 0 || b.index < 0) return a.index >= 0;
    const bool odd = a.value != a.value, other = b.value != b.value;
    if (odd != other) return odd;
    if (odd || a.value == b.value) return a.index < b.index;
    return a.value > b.value;
}

// Over [begin, end) of a row; whole vectors, and a rest at the end.
template <typename T>
Best best_of(const T* row, int64_t begin, int64_t end) {
    Best best{NOTHING, -1};
    int64_t i = begin;
    if (begin + LANES <= end) {
        vf top = splat(NOTHING);
        vi at = vi{} - 1;
        for (; i + LANES <= end; i += LANES) {
            const vf v = load(row + i);
            // A lane keeps its first NaN, which nothing beats; -infinity is taken when there was nothing.
            const vi better = ((top == top) & ~(v <= top)) | (at < 0);
            top = better ? v : top;
            at = better ? INDEX + int32_t(i) : at;
        }
        for (int64_t lane = 0; lane < LANES; ++lane) {
            const Best other{top[lane], at[lane]};
            if (beats(other, best)) best = other;
        }
    }
    for (; i < end; ++i) {
        const Best other{widen(row[i]), i};
        if (beats(other, best)) best = other;
    }
    return best;
}

// tokens: int64 [n_rows], finite: bool [n_rows], logits, stride, n_rows, vocab
template <typename T>
void greedy(const Word* a, const Team& team) {
    static Scratch<Best> scratch;
    int64_t* tokens = static_cast<int64_t*>(a[0].p);
    bool* finite = static_cast<bool*>(a[1].p);
    const T* logits = static_cast<const T*>(a[2].p);
    const int64_t stride = a[3].n, n_rows = a[4].n, vocab = a[5].n;
    Best* parts = scratch.get(team, n_rows * team.n_threads);
    int64_t begin, end;
    team.share(vocab, begin, end);
    for (int64_t row = 0; row < n_rows; ++row)
        parts[row * team.n_threads + team.thread] = best_of(logits + row * stride, begin, end);
    team.wait();
    team.share(n_rows, begin, end);
    for (int64_t row = begin; row < end; ++row) {
        Best best = parts[row * team.n_threads];
        for (int64_t t = 1; t < team.n_threads; ++t)
            if (beats(parts[row * team.n_threads + t], best)) best = parts[row * team.n_threads + t];
        tokens[row] = best.index;
        finite[row] = std::isfinite(best.value);
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void greedy_bf16(const Word* a, const Team& team) { greedy<bf16>(a, team); }
LORIKEET_EXPORT void greedy_f32(const Word* a, const Team& team) { greedy<float>(a, team); }
