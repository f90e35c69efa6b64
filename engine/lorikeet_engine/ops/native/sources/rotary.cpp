// Rotary embedding of q and k, and k and v into their slots, in one pass over the step's tokens.
#include <cstring>

#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t WORTH_THREADS = 64;  // tokens

// q, k and v are views of one fused row: heads lie `width` apart, tokens `stride`.
template <typename T>
struct Rows {
    const T *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
    const float *cos, *sin;
    const int64_t *blocks, *offsets;
};

template <typename T>
void rotate(T* out, const T* x, const float* cos, const float* sin, int64_t half) {
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        vf left = load(x + i), right = load(x + half + i), c = load(cos + i), s = load(sin + i);
        store(out + i, left * c - right * s);
        store(out + half + i, right * c + left * s);
    }
    for (; i < half; ++i) {
        const float left = widen(x[i]), right = widen(x[half + i]);
        narrow(out + i, left * cos[i] - right * sin[i]);
        narrow(out + half + i, right * cos[i] + left * sin[i]);
    }
}

template <typename T>
void rotate_and_write(const Rows<T>& rows, T* q_out, T* k_cache, T* v_cache, int64_t n_tokens, int64_t n_heads,
                      int64_t n_kv_heads, int64_t width, int64_t block) {
    const int64_t half = width / 2;
#pragma omp parallel for schedule(static) if (n_tokens >= WORTH_THREADS)
    for (int64_t t = 0; t < n_tokens; ++t) {
        const float *cos = rows.cos + t * half, *sin = rows.sin + t * half;
        for (int64_t h = 0; h < n_heads; ++h)
            rotate(q_out + (t * n_heads + h) * width, rows.q + t * rows.q_stride + h * width, cos, sin, half);
        for (int64_t h = 0; h < n_kv_heads; ++h) {
            const int64_t slot = ((rows.blocks[t] * n_kv_heads + h) * block + rows.offsets[t]) * width;
            rotate(k_cache + slot, rows.k + t * rows.k_stride + h * width, cos, sin, half);
            std::memcpy(v_cache + slot, rows.v + t * rows.v_stride + h * width, width * sizeof(T));
        }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

#define LORIKEET_ROTARY(NAME, T) \
    LORIKEET_EXPORT void NAME(T* q_out, const T* q, int64_t q_stride, const T* k, int64_t k_stride, const T* v, \
                         int64_t v_stride, const float* cos, const float* sin, const int64_t* blocks, \
                         const int64_t* offsets, T* k_cache, T* v_cache, int64_t n_tokens, int64_t n_heads, \
                         int64_t n_kv_heads, int64_t width, int64_t block) { \
        rotate_and_write<T>({q, k, v, q_stride, k_stride, v_stride, cos, sin, blocks, offsets}, q_out, k_cache, \
                            v_cache, n_tokens, n_heads, n_kv_heads, width, block); \
    }

LORIKEET_ROTARY(rotary_write_bf16, bf16)
LORIKEET_ROTARY(rotary_write_f32, float)
