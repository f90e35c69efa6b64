// Sixteen floats at a time, in whatever the compiler makes of them on this CPU, and bfloat16 in and out of them.
//
// Everything but what compilers do badly by themselves is plain vector arithmetic, so that the same sources serve a CPU
// without AVX-512; the paths are chosen by the flags that -march=native sets.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define LORIKEET_EXPORT extern "C" __attribute__((visibility("default")))

namespace lorikeet {

struct bf16 {
    uint16_t bits;
};

constexpr int64_t LANES = 16;

typedef float vf __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint16_t vh __attribute__((vector_size(32)));

constexpr vi INDEX = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};  // of a lane
constexpr float NOTHING = -__builtin_inff();  // the score of what is not seen

inline vf splat(float x) { return vf{} + x; }

inline vf load(const float* p) {
    vf v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

inline vf load(const bf16* p) {
    vh half;
    std::memcpy(&half, p, sizeof half);
    return (vf)(__builtin_convertvector(half, vu) << 16);
}

inline void store(float* p, vf v) { std::memcpy(p, &v, sizeof v); }

inline void store(bf16* p, vf v) {
#if defined(__AVX512BF16__)
    __m256bh half = _mm512_cvtneps_pbh((__m512)v);
#else
    vu bits = (vu)v;
    vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
    vh half = __builtin_convertvector(v == v ? rounded : vu{} + 0x7fc0, vh);
#endif
    std::memcpy(p, &half, sizeof half);
}

inline float widen(float x) { return x; }

inline float widen(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

inline void narrow(float* p, float x) { *p = x; }

inline void narrow(bf16* p, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    p->bits = x == x ? uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) : uint16_t(0x7fc0);
}

// What a float becomes when it is stored as T and read again: torch rounds between two operations, so do we.
template <typename T>
inline vf through(vf v) {
    alignas(64) T stored[LANES];
    store(stored, v);
    return load(stored);
}

template <>
inline vf through<float>(vf v) {
    return v;
}

inline float sum(vf v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    for (int64_t n = LANES / 2; n; n /= 2)
        for (int64_t i = 0; i < n; ++i) v[i] += v[i + n];
    return v[0];
#endif
}

inline float largest(vf v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#else
    float top = v[0];
    for (int64_t i = 1; i < LANES; ++i) top = v[i] > top ? v[i] : top;
    return top;
#endif
}

// exp to about one unit in the last place between -87 and 88, where it is clamped; NaN stays NaN.
inline vf exp(vf x) {
    x = x < -87.0f ? splat(-87.0f) : x;
    x = x > 88.0f ? splat(88.0f) : x;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    vf n = (x * 1.44269504088896341f + magic) - magic;
    vf r = x - n * 0.693359375f - n * -2.12194440e-4f;
    vf p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    vi power = (__builtin_convertvector(n, vi) + 127) << 23;
    return (p * r * r + r + 1.0f) * (vf)power;
}

// Dot products, STEP elements of both sides at a time.
template <typename T>
struct Dot {
    static constexpr int64_t STEP = LANES;
    static vf step(vf acc, const T* a, const T* b) { return acc + load(a) * load(b); }
};

#if defined(__AVX512BF16__)
template <>
struct Dot<bf16> {
    static constexpr int64_t STEP = 2 * LANES;
    static vf step(vf acc, const bf16* a, const bf16* b) {
        return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_loadu_si512(a), (__m512bh)_mm512_loadu_si512(b));
    }
};
#endif

// Lane i of the result is sum(v[i]): halves, quarters and so on of two vectors are folded into one, which takes a third
// of the instructions of sixteen sums.
inline vf sums(const vf (&v)[LANES]) {
    vf a[8], b[4], c[2];
    for (int i = 0; i < 8; ++i)
        a[i] = __builtin_shufflevector(v[i], v[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(v[i], v[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    for (int i = 0; i < 4; ++i)
        b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
               __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int i = 0; i < 2; ++i)
        c[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
               __builtin_shufflevector(b[i], b[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    return __builtin_shufflevector(c[0], c[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
           __builtin_shufflevector(c[0], c[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}

// Sixteen partial sums of a . b over `n` elements.
template <typename T>
inline vf dot(const T* a, const T* b, int64_t n) {
    vf acc = {};
    int64_t i = 0;
    for (; i + Dot<T>::STEP <= n; i += Dot<T>::STEP) acc = Dot<T>::step(acc, a + i, b + i);
    for (; i < n; i += LANES) acc += load(a + i) * load(b + i);
    return acc;
}

}  // namespace lorikeet
