// Grouped LoRA: out[run] += round(x[run] A^T) Bt for all runs and slices of one site in one call.
//
// A and Bt are read where they lie in the arena, by the head at the front of each extent. Work is cut by the weights'
// bytes: an adapter's matrices that fall into one thread's share are read by it front to back, A and then Bt; those on
// the border between two shares are split over all threads. The order in which one output is summed depends on nothing
// but its adapter.
#include <algorithm>
#include <vector>

#include "team.h"
#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t GRAIN = 16, MODULES = 7, RANK_MASK = 0xffff, FLAG_SHIFT = 16, DORA = 2;
constexpr int64_t FIXED = 4;  // reading a weight costs as much as computing with it for so many tokens
// Rows of a matrix taken together, columns of a strip of Bt over all its tokens, tokens taken together; and columns of
// Bt that never part, so that how they are summed does not depend on where a thread's share ends.
constexpr int64_t ROWS = 4, STRIP = 2048, MAX_TOKENS = 4, TILE = 2 * LANES, AHEAD = 8192;

struct Run {
    int64_t base, first, n_tokens;
};

struct Slice {
    int64_t module, column, width;
};

// What a block with a vector does to the output before the delta is added: vector is added (BIAS), or vector times what
// the base weight gave (DORA).
template <typename T>
struct Extra {
    const float* vector;
    const T* base_bias;
    bool scales;

    Extra from(int64_t column) const {
        return {vector ? vector + column : nullptr, base_bias ? base_bias + column : nullptr, scales};
    }
    vf apply(vf y, int64_t c) const {
        if (!vector) return y;
        const vf v = load(vector + c);
        return scales ? y + v * (base_bias ? y - load(base_bias + c) : y) : y + v;
    }
};

template <typename T>
struct Pair {  // one adapter's matrices for one slice
    const T *a, *bt;
    Extra<T> extra;
    int64_t rank, first, n_tokens, column, width;
    int64_t v;         // where its x A^T begins in the scratch, [token][rank]
    int64_t cost;      // of a row of A, or of a rank of a tile of Bt
    int64_t begin, end;            // its place in the cost of all pairs
    int64_t shrink_at, expand_at;  // on a border: its places in the cost of those split
};

// How far ahead of a group of rows to fetch: whole groups, and AHEAD bytes at least. What follows A is Bt, and what
// follows Bt mostly the next module's A. A group's rows are read side by side, but what is ahead is fetched in the
// order of memory and into the second cache, which is a third faster than row by row into the first.
template <typename T>
int64_t ahead(int64_t group) {
    return group * ceil_div(AHEAD, group * int64_t(sizeof(T)));
}

// Units of equal cost that begin inside [low, high), as [begin, end) of `count`.
inline void share(int64_t at, int64_t cost, int64_t count, int64_t low, int64_t high, int64_t& begin, int64_t& end) {
    begin = std::min(count, ceil_div(std::max<int64_t>(0, low - at), cost));
    end = std::min(count, ceil_div(std::max<int64_t>(0, high - at), cost));
}

template <typename T, int R, int M>
void shrink_tile(const T* a, int64_t n_in, const T* x, int64_t x_stride, float* v, int64_t v_stride) {
    const int64_t next = ahead<T>(R * n_in);
    vf acc[R][M] = {};
    int64_t k = 0;
    for (; k + Dot<T>::STEP <= n_in; k += Dot<T>::STEP) {
        for (int r = 0; r < R; ++r) __builtin_prefetch(a + R * k + r * Dot<T>::STEP + next, 0, 2);
        for (int m = 0; m < M; ++m)
            for (int r = 0; r < R; ++r) acc[r][m] = Dot<T>::step(acc[r][m], a + r * n_in + k, x + m * x_stride + k);
    }
    for (; k < n_in; k += LANES)
        for (int m = 0; m < M; ++m)
            for (int r = 0; r < R; ++r) acc[r][m] += load(a + r * n_in + k) * load(x + m * x_stride + k);
    for (int m = 0; m < M; ++m)
        for (int r = 0; r < R; ++r) {
            T rounded;
            narrow(&rounded, sum(acc[r][m]));
            v[m * v_stride + r] = widen(rounded);
        }
}

template <typename T, int R>
void shrink_rows(const T* a, int64_t n_in, const T* x, int64_t x_stride, float* v, int64_t rank, int64_t n_tokens) {
    int64_t t = 0;
    for (; t + MAX_TOKENS <= n_tokens; t += MAX_TOKENS)
        shrink_tile<T, R, MAX_TOKENS>(a, n_in, x + t * x_stride, x_stride, v + t * rank, rank);
    for (; t < n_tokens; ++t) shrink_tile<T, R, 1>(a, n_in, x + t * x_stride, x_stride, v + t * rank, rank);
}

template <typename T>
void shrink(const Pair<T>& p, int64_t begin, int64_t end, const T* x, int64_t x_stride, int64_t n_in, float* scratch) {
    const T* rows = x + p.first * x_stride;
    float* v = scratch + p.v;
    int64_t r = begin;
    for (; r + ROWS <= end; r += ROWS)
        shrink_rows<T, ROWS>(p.a + r * n_in, n_in, rows, x_stride, v + r, p.rank, p.n_tokens);
    for (; r < end; ++r) shrink_rows<T, 1>(p.a + r * n_in, n_in, rows, x_stride, v + r, p.rank, p.n_tokens);
}

template <int R, int M, typename T>
void add_ranks(const T* bt, int64_t width, int64_t n, const float* v, int64_t rank, float* acc) {
    const int64_t next = ahead<T>(R * width);
    for (int64_t c = 0; c < n; c += LANES) {
        vf w[R];
        for (int r = 0; r < R; ++r) {
            __builtin_prefetch(bt + r * width + c + next);
            w[r] = load(bt + r * width + c);
        }
        for (int m = 0; m < M; ++m) {
            vf total = load(acc + m * (STRIP / M) + c);
            for (int r = 0; r < R; ++r) total += v[m * rank + r] * w[r];
            store(acc + m * (STRIP / M) + c, total);
        }
    }
}

// target[m] += v[m] Bt over n columns, summed in the order of the ranks.
template <int M, typename T>
void add_columns(const T* bt, int64_t width, int64_t n, const float* v, int64_t rank, const Extra<T>& extra, T* target,
                 int64_t stride) {
    alignas(64) float acc[STRIP];
    for (int m = 0; m < M; ++m)
        for (int64_t c = 0; c < n; c += LANES)
            store(acc + m * (STRIP / M) + c, extra.apply(load(target + m * stride + c), c));
    int64_t r = 0;
    for (; r + ROWS <= rank; r += ROWS) add_ranks<ROWS, M>(bt + r * width, width, n, v + r, rank, acc);
    for (; r < rank; ++r) add_ranks<1, M>(bt + r * width, width, n, v + r, rank, acc);
    for (int m = 0; m < M; ++m)
        for (int64_t c = 0; c < n; c += LANES) store(target + m * stride + c, load(acc + m * (STRIP / M) + c));
}

#if defined(__AVX512BF16__)
// Two ranks' rows interleaved are what the bf16 product wants. Interleaving works inside 128-bit lanes, so sums are
// kept in its order (`low`: the first half of each lane's columns) and put straight when they are stored.
constexpr int64_t WIDE = TILE;

inline void in_lanes(const vf& a, const vf& b, float* acc) {
    store(acc, __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27));
    store(acc + LANES, __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
}

inline void put_straight(const float* acc, bf16* target) {
    vf low = load(acc), high = load(acc + LANES);
    store(target, __builtin_shufflevector(low, high, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
    store(target + LANES,
          __builtin_shufflevector(low, high, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31));
}

// PAIRS pairs of ranks; the last rank of an odd number stands alone and is paired with itself times zero.
template <int PAIRS, int M>
void add_pairs(const bf16* bt, int64_t width, int64_t n, const float* v, int64_t rank, bool alone, float* acc) {
    const int64_t next = ahead<bf16>(2 * PAIRS * width);
    int32_t pairs[PAIRS][M];
    for (int p = 0; p < PAIRS; ++p)
        for (int m = 0; m < M; ++m) {
            bf16 both[2];
            narrow(both, v[m * rank + 2 * p]);
            narrow(both + 1, alone ? 0.0f : v[m * rank + 2 * p + 1]);
            std::memcpy(&pairs[p][m], both, sizeof both);
        }
    for (int64_t c = 0; c < n; c += WIDE) {
        __m512bh low[PAIRS], high[PAIRS];
        for (int p = 0; p < PAIRS; ++p) {
            const bf16 *first = bt + 2 * p * width + c, *second = alone ? first : first + width;
            __builtin_prefetch(bt + 2 * PAIRS * c + 2 * p * WIDE + next, 0, 2);
            __builtin_prefetch(bt + 2 * PAIRS * c + (2 * p + 1) * WIDE + next, 0, 2);
            __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
            low[p] = (__m512bh)_mm512_unpacklo_epi16(a, b);
            high[p] = (__m512bh)_mm512_unpackhi_epi16(a, b);
        }
        for (int m = 0; m < M; ++m) {
            float* at = acc + m * (STRIP / M) + c;
            __m512 l = (__m512)load(at), h = (__m512)load(at + LANES);
            for (int p = 0; p < PAIRS; ++p) {
                const __m512bh value = (__m512bh)_mm512_set1_epi32(pairs[p][m]);
                l = _mm512_dpbf16_ps(l, value, low[p]);
                h = _mm512_dpbf16_ps(h, value, high[p]);
            }
            store(at, (vf)l), store(at + LANES, (vf)h);
        }
    }
}

template <int M>
void add_columns(const bf16* bt, int64_t width, int64_t n, const float* v, int64_t rank, const Extra<bf16>& extra,
                 bf16* target, int64_t stride) {
    constexpr int PAIRS = 4;
    alignas(64) float acc[STRIP];
    const int64_t wide = n / WIDE * WIDE;
    for (int m = 0; m < M; ++m)
        for (int64_t c = 0; c < wide; c += WIDE) {
            const bf16* from = target + m * stride + c;
            in_lanes(extra.apply(load(from), c), extra.apply(load(from + LANES), c + LANES), acc + m * (STRIP / M) + c);
        }
    int64_t r = 0;
    for (; r + 2 * PAIRS <= rank; r += 2 * PAIRS)
        add_pairs<PAIRS, M>(bt + r * width, width, wide, v + r, rank, false, acc);
    for (; r < rank; r += 2) add_pairs<1, M>(bt + r * width, width, wide, v + r, rank, r + 1 == rank, acc);
    for (int m = 0; m < M; ++m)
        for (int64_t c = 0; c < wide; c += WIDE)
            put_straight(acc + m * (STRIP / M) + c, target + m * stride + c);
    if (wide < n) add_columns<M, bf16>(bt + wide, width, n - wide, v, rank, extra.from(wide), target + wide, stride);
}
#endif

template <typename T, int M>
void expand_tokens(const Pair<T>& p, int64_t begin, int64_t end, int64_t t, T* out, int64_t stride, const float* v) {
    for (int64_t c = begin; c < end; c += STRIP / M)
        add_columns<M>(p.bt + c, p.width, std::min(STRIP / M, end - c), v + t * p.rank, p.rank, p.extra.from(c),
                       out + (p.first + t) * stride + p.column + c, stride);
}

template <typename T>
void expand(const Pair<T>& p, int64_t begin, int64_t end, T* out, int64_t stride, const float* scratch) {
    const float* v = scratch + p.v;
    int64_t t = 0;
    for (; t + MAX_TOKENS <= p.n_tokens; t += MAX_TOKENS)
        expand_tokens<T, MAX_TOKENS>(p, begin, end, t, out, stride, v);
    for (; t < p.n_tokens; ++t) expand_tokens<T, 1>(p, begin, end, t, out, stride, v);
}

template <typename T>
struct Call {
    T* out;
    int64_t out_stride;
    const T* x;
    int64_t x_stride;
    const T* arena;
    const int64_t* code;  // how many runs, and the runs
    int64_t layer;
    const Slice* slices;
    int64_t n_slices, n_in;
    const T* base_bias;
};

// The matrices that the step's runs have for this site; returns what all of them cost.
template <typename T>
int64_t find_pairs(const Call<T>& call, std::vector<Pair<T>>& pairs, int64_t& n_values) {
    const Run* runs = reinterpret_cast<const Run*>(call.code + 1);
    int64_t total = 0;
    pairs.clear();
    n_values = 0;
    for (int64_t i = 0; i < call.code[0]; ++i) {
        const Run& run = runs[i];
        const T* extent = call.arena + GRAIN * run.base;
        const int32_t* head = reinterpret_cast<const int32_t*>(extent) + call.layer * MODULES * 2;
        for (int64_t s = 0; s < call.n_slices; ++s) {
            const Slice& slice = call.slices[s];
            const int64_t word = head[slice.module * 2 + 1], rank = word & RANK_MASK, flags = word >> FLAG_SHIFT;
            if (rank == 0) continue;
            const T *a = extent + GRAIN * int64_t(head[slice.module * 2]), *bt = a + rank * call.n_in;
            const float* vector = flags ? reinterpret_cast<const float*>(bt + rank * slice.width) : nullptr;
            const int64_t size = rank * (call.n_in + slice.width) * (FIXED + run.n_tokens);
            pairs.push_back({a, bt, {vector, call.base_bias ? call.base_bias + slice.column : nullptr, flags == DORA},
                             rank, run.first, run.n_tokens, slice.column, slice.width, n_values,
                             FIXED + run.n_tokens, total, total + size, 0, 0});
            n_values += rank * run.n_tokens;
            total += size;
        }
    }
    return total;
}

template <typename T>
void lora(const Word* words, const Team& team) {
    static Scratch<float> values;
    static thread_local std::vector<Pair<T>> pairs;
    static thread_local std::vector<Pair<T>*> split;
    const Call<T>& call = *reinterpret_cast<const Call<T>*>(words);
    int64_t n_values, begin, end, shrink_cost = 0, expand_cost = 0;
    const int64_t total = find_pairs(call, pairs, n_values);
    if (pairs.empty()) return;
    float* scratch = values.get(team, n_values);
    auto border = [&](int64_t t) { return total * t / team.n_threads; };
    split.clear();
    int64_t t = 1;
    for (Pair<T>& pair : pairs) {
        while (t < team.n_threads && border(t) <= pair.begin) ++t;
        if (t == team.n_threads || border(t) >= pair.end) continue;
        pair.shrink_at = shrink_cost, pair.expand_at = expand_cost;
        shrink_cost += pair.rank * pair.cost;
        expand_cost += ceil_div(pair.width, TILE) * pair.rank * pair.cost;
        split.push_back(&pair);
    }
    int64_t low = shrink_cost * team.thread / team.n_threads, high = shrink_cost * (team.thread + 1) / team.n_threads;
    for (const Pair<T>* pair : split) {
        share(pair->shrink_at, pair->cost, pair->rank, low, high, begin, end);
        if (begin < end) shrink(*pair, begin, end, call.x, call.x_stride, call.n_in, scratch);
    }
    for (const Pair<T>& pair : pairs) {
        if (pair.begin < border(team.thread) || pair.end > border(team.thread + 1)) continue;
        shrink(pair, 0, pair.rank, call.x, call.x_stride, call.n_in, scratch);
        expand(pair, 0, pair.width, call.out, call.out_stride, scratch);
    }
    team.wait();
    low = expand_cost * team.thread / team.n_threads, high = expand_cost * (team.thread + 1) / team.n_threads;
    for (const Pair<T>* pair : split) {
        share(pair->expand_at, pair->cost * pair->rank, ceil_div(pair->width, TILE), low, high, begin, end);
        end = std::min(pair->width, end * TILE);
        if (begin * TILE < end) expand(*pair, begin * TILE, end, call.out, call.out_stride, scratch);
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void lora_bf16(const Word* a, const Team& team) { lora<bf16>(a, team); }
LORIKEET_EXPORT void lora_f32(const Word* a, const Team& team) { lora<float>(a, team); }
