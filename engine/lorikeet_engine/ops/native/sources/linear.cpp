// x W^T for few rows and many: weights in panels of 48 columns, K running fastest in pairs (bf16) or ones (float32).
//
// Panel layout: [K / STEP][columns][STEP] with STEP elements to a 32-bit word, so that one register holds the same
// K-step of 16 columns and a word of x is broadcast against it. A thread reads its panels front to back exactly once
// for every 64 rows. The sum of an output runs over K in order, however many rows there are.
#include <algorithm>

#include "threads.h"
#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t PANEL = 48, TILE_ROWS = 8, BLOCK_ROWS = 64, AHEAD = 2048;

template <typename T>
struct Word;

template <>
struct Word<float> {
    static constexpr int64_t STEP = 1;
    static vf add(vf acc, const float* x, vf w) { return acc + *x * w; }
    static vf read(const float* w) { return load(w); }
};

#if defined(__AVX512BF16__)
template <>
struct Word<bf16> {
    static constexpr int64_t STEP = 2;
    static vf add(vf acc, const bf16* x, __m512i w) {
        int32_t pair;
        std::memcpy(&pair, x, sizeof pair);
        return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)w);
    }
    static __m512i read(const bf16* w) { return _mm512_loadu_si512(w); }
};
#else
template <>
struct Word<bf16> {
    static constexpr int64_t STEP = 2;
    static vf add(vf acc, const bf16* x, vu w) {
        return acc + widen(x[0]) * (vf)(w << 16) + widen(x[1]) * (vf)(w & 0xffff0000u);
    }
    static vu read(const bf16* w) {
        vu words;
        std::memcpy(&words, w, sizeof words);
        return words;
    }
};
#endif

template <typename T>
struct Product {
    const T *x, *weight, *bias;
    T* out;
    int64_t x_stride, n_rows, n_in, n_out;
};

template <typename T, int M, int N>
void tile(const Product<T>& p, const T* w, int64_t row, int64_t column) {
    constexpr int64_t STEP = Word<T>::STEP, LINE = N * LANES * STEP;
    const T* x = p.x + row * p.x_stride;
    vf acc[M][N] = {};
    for (int64_t k = 0; k < p.n_in; k += STEP, w += LINE) {
        decltype(Word<T>::read(w)) words[N];
        for (int n = 0; n < N; ++n) {
            __builtin_prefetch(reinterpret_cast<const char*>(w + n * LANES * STEP) + AHEAD);
            words[n] = Word<T>::read(w + n * LANES * STEP);
        }
        for (int m = 0; m < M; ++m)
            for (int n = 0; n < N; ++n) acc[m][n] = Word<T>::add(acc[m][n], x + m * p.x_stride + k, words[n]);
    }
    for (int n = 0; n < N; ++n) {
        const int64_t c = column + n * LANES;
        const vf bias = p.bias ? load(p.bias + c) : vf{};
        for (int m = 0; m < M; ++m) store(p.out + (row + m) * p.n_out + c, acc[m][n] + bias);
    }
}

template <typename T, int N>
void rows(const Product<T>& p, const T* w, int64_t row, int64_t end, int64_t column) {
    for (; row + TILE_ROWS <= end; row += TILE_ROWS) tile<T, TILE_ROWS, N>(p, w, row, column);
    switch (end - row) {
        case 7: return tile<T, 7, N>(p, w, row, column);
        case 6: return tile<T, 6, N>(p, w, row, column);
        case 5: return tile<T, 5, N>(p, w, row, column);
        case 4: return tile<T, 4, N>(p, w, row, column);
        case 3: return tile<T, 3, N>(p, w, row, column);
        case 2: return tile<T, 2, N>(p, w, row, column);
        case 1: return tile<T, 1, N>(p, w, row, column);
        default: return;
    }
}

template <typename T>
void multiply(const Product<T>& p) {
    const int64_t n_panels = (p.n_out + PANEL - 1) / PANEL, n_blocks = (p.n_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
#pragma omp parallel
    {
        int64_t thread, n_threads;
        thread_index(thread, n_threads);
        // A thread keeps its panels while it goes through the blocks of rows.
        const int64_t first = n_panels * thread / n_threads, last = n_panels * (thread + 1) / n_threads;
        for (int64_t block = 0; block < n_blocks; ++block)
            for (int64_t panel = first; panel < last; ++panel) {
                const int64_t column = panel * PANEL, row = block * BLOCK_ROWS;
                const int64_t end = std::min(p.n_rows, row + BLOCK_ROWS);
                const T* w = p.weight + column * p.n_in;
                switch (std::min(PANEL, p.n_out - column) / LANES) {
                    case 3: rows<T, 3>(p, w, row, end, column); break;
                    case 2: rows<T, 2>(p, w, row, end, column); break;
                    default: rows<T, 1>(p, w, row, end, column);
                }
            }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

#define LORIKEET_LINEAR(NAME, T) \
    LORIKEET_EXPORT void NAME(T* out, const T* x, int64_t x_stride, const T* weight, const T* bias, int64_t n_rows, \
                         int64_t n_in, int64_t n_out) { \
        multiply<T>({x, weight, bias, out, x_stride, n_rows, n_in, n_out}); \
    }

LORIKEET_LINEAR(linear_bf16, bf16)
LORIKEET_LINEAR(linear_f32, float)
