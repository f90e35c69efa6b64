// The inner product of everything that multiplies: some rows of x by a panel of columns.
//
// A panel is [K / STEP][columns][STEP] with STEP elements of x to a 32-bit word (pairs in bf16, ones in float32), so that
// one register holds the same K-step of 16 columns and a word of x is broadcast against it. An output is summed over K
// in order, however many rows there are.
#pragma once

#include "vec.h"

namespace lorikeet {

// How a K-step of weights W is read and multiplied by x of type T.
template <typename T, typename W = T>
struct Step;

template <>
struct Step<float> {
    static constexpr int64_t STEP = 1;
    static vf add(vf acc, const float* x, vf w) { return acc + *x * w; }
    static vf read(const float* w) { return load(w); }
};

#if defined(__AVX512BF16__)
template <>
struct Step<bf16> {
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
struct Step<bf16> {
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

// acc[m][n] += x[m] . columns 16 n of the panel; `ahead`: bytes to fetch before they are needed.
template <typename T, typename W, int M, int N>
inline void multiply(const T* x, int64_t x_stride, const W* w, int64_t n_in, int64_t ahead, vf (&acc)[M][N]) {
    constexpr int64_t STEP = Step<T, W>::STEP, LINE = N * LANES * STEP;
    for (int64_t k = 0; k < n_in; k += STEP, w += LINE) {
        decltype(Step<T, W>::read(w)) words[N];
        for (int n = 0; n < N; ++n) {
            if (ahead) __builtin_prefetch(reinterpret_cast<const char*>(w + n * LANES * STEP) + ahead, 0, 2);
            words[n] = Step<T, W>::read(w + n * LANES * STEP);
        }
        for (int m = 0; m < M; ++m)
            for (int n = 0; n < N; ++n) acc[m][n] = Step<T, W>::add(acc[m][n], x + m * x_stride + k, words[n]);
    }
}

}  // namespace lorikeet
