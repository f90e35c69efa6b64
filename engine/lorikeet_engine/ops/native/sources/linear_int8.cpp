// x W^T with 8-bit weights, widened in registers to x's own type, and a float32 scale for each output.
//
// An integer of at most 127 is exact in bf16 as in float32, so that a product is rounded as it is with weights of x's
// type and the sum is scaled once at its end: (sum of x q) * scale + bias. The panels are those of x's type, a byte to
// an element. Widening hides behind the products: a panel takes half the time to read, and no longer to multiply.
#include "linear.h"

namespace lorikeet {

inline vf load(const int8_t* p) {
#if defined(__AVX512F__)
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
    float wide[LANES];
    for (int64_t i = 0; i < LANES; ++i) wide[i] = p[i];
    return load(wide);
#endif
}

template <>
struct Step<float, int8_t> : Step<float> {
    static vf read(const int8_t* w) { return load(w); }
};

#if defined(__AVX512BF16__)
template <>
struct Step<bf16, int8_t> : Step<bf16> {
    static __m512i read(const int8_t* w) {
        return (__m512i)_mm512_cvtne2ps_pbh((__m512)load(w + LANES), (__m512)load(w));
    }
};
#else
template <>
struct Step<bf16, int8_t> {
    static constexpr int64_t STEP = 2;
    struct Pairs {
        vf first, second;
    };
    static vf add(vf acc, const bf16* x, const Pairs& w) {
        return acc + widen(x[0]) * w.first + widen(x[1]) * w.second;
    }
    static Pairs read(const int8_t* w) {
        float first[LANES], second[LANES];
        for (int64_t i = 0; i < LANES; ++i) {
            first[i] = w[2 * i];
            second[i] = w[2 * i + 1];
        }
        return {load(first), load(second)};
    }
};
#endif

namespace {

template <typename T>
struct ScaledProduct {
    T* out;
    int64_t out_stride;
    const T* x;
    int64_t x_stride;
    const int8_t* weight;
    const T* bias;
    int64_t n_rows, n_in, n_out;
    const float* scale;

    vf finish(vf sum, int64_t column) const {
        const vf scaled = sum * load(scale + column);
        return bias ? scaled + load(bias + column) : scaled;
    }
};

template <typename T>
void product(const Word* words, const Team& team) {
    linear(*reinterpret_cast<const ScaledProduct<T>*>(words), team);
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void linear_int8_bf16(const Word* a, const Team& team) { product<bf16>(a, team); }
LORIKEET_EXPORT void linear_int8_f32(const Word* a, const Team& team) { product<float>(a, team); }
