// Grouped LoRA: out[run] += round(x[run] A^T) Bt for all short runs and slices of one site in one call.
//
// A and Bt are read where they lie in the arena, by the head at the front of each extent. Work is cut by the weights'
// bytes, not by adapter, so that one thread's share of a batch of unlike ranks is as large as another's. The order in
// which one output is summed depends on nothing but its adapter.
#include <algorithm>
#include <vector>

#include "threads.h"
#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t GRAIN = 16, MODULES = 7, RANK_MASK = 0xffff;
// Rows of a matrix taken together, columns of a strip of Bt over all its tokens, tokens taken together.
constexpr int64_t ROWS = 4, STRIP = 2048, MAX_TOKENS = 4;

struct Run {
    int64_t base, first, n_tokens;
};

struct Slice {
    int64_t module, column, width;
};

template <typename T>
struct Pair {  // one adapter's matrices for one slice
    const T *a, *bt;
    int64_t rank, first, n_tokens, column, width;
    int64_t v;         // where its x A^T begins in the scratch, [token][rank]
    int64_t cost;      // of a row of A, or of a rank of a tile of Bt
    int64_t shrink_at, expand_at;  // cost of all that stands before it
};

inline int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Units of equal cost that begin inside [low, high), as [begin, end) of `count`.
inline void share(int64_t at, int64_t cost, int64_t count, int64_t low, int64_t high, int64_t& begin, int64_t& end) {
    begin = std::min(count, ceil_div(std::max<int64_t>(0, low - at), cost));
    end = std::min(count, ceil_div(std::max<int64_t>(0, high - at), cost));
}

template <typename T, int R, int M>
void shrink_tile(const T* a, int64_t n_in, const T* x, int64_t x_stride, float* v, int64_t v_stride) {
    vf acc[R][M] = {};
    int64_t k = 0;
    for (; k + Dot<T>::STEP <= n_in; k += Dot<T>::STEP) {
        for (int r = 0; r < R; ++r) __builtin_prefetch(a + (R + r) * n_in + k);
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

template <typename T, int R, int M>
void expand_ranks(const T* bt, int64_t width, int64_t n, const float* v, int64_t rank, float* acc) {
    for (int64_t c = 0; c < n; c += LANES) {
        vf w[R];
        for (int r = 0; r < R; ++r) {
            __builtin_prefetch(bt + (R + r) * width + c);
            w[r] = load(bt + r * width + c);
        }
        for (int m = 0; m < M; ++m) {
            vf total = load(acc + m * (STRIP / M) + c);
            for (int r = 0; r < R; ++r) total += v[m * rank + r] * w[r];
            store(acc + m * (STRIP / M) + c, total);
        }
    }
}

template <typename T, int M>
void expand_strip(const Pair<T>& p, int64_t begin, int64_t n, int64_t token, T* out, int64_t stride, const float* v) {
    alignas(64) float acc[STRIP];
    T* target = out + (p.first + token) * stride + p.column + begin;
    for (int m = 0; m < M; ++m)
        for (int64_t c = 0; c < n; c += LANES) store(acc + m * (STRIP / M) + c, load(target + m * stride + c));
    const float* values = v + token * p.rank;
    int64_t r = 0;
    for (; r + ROWS <= p.rank; r += ROWS)
        expand_ranks<T, ROWS, M>(p.bt + r * p.width + begin, p.width, n, values + r, p.rank, acc);
    for (; r < p.rank; ++r) expand_ranks<T, 1, M>(p.bt + r * p.width + begin, p.width, n, values + r, p.rank, acc);
    for (int m = 0; m < M; ++m)
        for (int64_t c = 0; c < n; c += LANES) store(target + m * stride + c, load(acc + m * (STRIP / M) + c));
}

template <typename T, int M>
void expand_tokens(const Pair<T>& p, int64_t begin, int64_t end, int64_t t, T* out, int64_t stride, const float* v) {
    for (int64_t c = begin; c < end; c += STRIP / M)
        expand_strip<T, M>(p, c, std::min(STRIP / M, end - c), t, out, stride, v);
}

template <typename T>
void expand(const Pair<T>& p, int64_t begin, int64_t end, T* out, int64_t stride, const float* scratch) {
    const float* v = scratch + p.v;
    int64_t t = 0;
    for (; t + MAX_TOKENS <= p.n_tokens; t += MAX_TOKENS) expand_tokens<T, MAX_TOKENS>(p, begin, end, t, out, stride, v);
    for (; t < p.n_tokens; ++t) expand_tokens<T, 1>(p, begin, end, t, out, stride, v);
}

template <typename T>
void add(T* out, int64_t out_stride, const T* x, int64_t x_stride, const T* arena, const Run* runs, int64_t n_runs,
         int64_t layer, const Slice* slices, int64_t n_slices, int64_t n_in) {
    static thread_local std::vector<Pair<T>> pairs;
    static thread_local std::vector<float> values;
    pairs.clear();
    int64_t n_values = 0, shrink_cost = 0, expand_cost = 0;
    for (int64_t i = 0; i < n_runs; ++i) {
        const Run& run = runs[i];
        const T* extent = arena + GRAIN * run.base;
        const int32_t* head = reinterpret_cast<const int32_t*>(extent) + layer * MODULES * 2;
        for (int64_t s = 0; s < n_slices; ++s) {
            const Slice& slice = slices[s];
            const int64_t rank = head[slice.module * 2 + 1] & RANK_MASK;
            if (rank == 0) continue;
            const T* a = extent + GRAIN * int64_t(head[slice.module * 2]);
            const int64_t cost = 4 + run.n_tokens;
            pairs.push_back({a, a + rank * n_in, rank, run.first, run.n_tokens, slice.column, slice.width, n_values,
                             cost, shrink_cost, expand_cost});
            n_values += rank * run.n_tokens;
            shrink_cost += rank * cost;
            expand_cost += slice.width / LANES * rank * cost;
        }
    }
    if (pairs.empty()) return;
    if (int64_t(values.size()) < n_values) values.resize(n_values);
    const Pair<T>* all = pairs.data();
    const int64_t n_pairs = pairs.size();
    float* scratch = values.data();
#pragma omp parallel
    {
        int64_t thread = 0, n_threads = 1, begin, end;
        thread_index(thread, n_threads);
        int64_t low = shrink_cost * thread / n_threads, high = shrink_cost * (thread + 1) / n_threads;
        for (int64_t i = 0; i < n_pairs; ++i) {
            share(all[i].shrink_at, all[i].cost, all[i].rank, low, high, begin, end);
            if (begin < end) shrink(all[i], begin, end, x, x_stride, n_in, scratch);
        }
#pragma omp barrier
        low = expand_cost * thread / n_threads, high = expand_cost * (thread + 1) / n_threads;
        for (int64_t i = 0; i < n_pairs; ++i) {
            share(all[i].expand_at, all[i].cost * all[i].rank, all[i].width / LANES, low, high, begin, end);
            if (begin < end) expand(all[i], begin * LANES, end * LANES, out, out_stride, scratch);
        }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

#define LORIKEET_LORA(NAME, T)                                                                                    \
    LORIKEET_EXPORT void NAME(T* out, int64_t out_stride, const T* x, int64_t x_stride, const T* arena,                \
                         const int64_t* runs, int64_t n_runs, int64_t layer, const int64_t* slices,               \
                         int64_t n_slices, int64_t n_in) {                                                        \
        add<T>(out, out_stride, x, x_stride, arena, reinterpret_cast<const Run*>(runs), n_runs, layer,            \
               reinterpret_cast<const Slice*>(slices), n_slices, n_in);                                           \
    }

LORIKEET_LORA(lora_bf16, bf16)
LORIKEET_LORA(lora_f32, float)
