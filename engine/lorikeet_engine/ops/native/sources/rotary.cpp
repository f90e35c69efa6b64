// Rotary embedding of q and k, and k and v into their slots, in one pass over the step's tokens.
#include <cstring>

#include "team.h"
#include "vec.h"

namespace lorikeet {
namespace {

// q, k and v are views of one fused row: heads lie `width` apart, tokens `stride`. cos and sin may be absent.
template <typename T>
struct Rows {
    T *q_out, *k_cache, *v_cache;
    const T *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
    const float *cos, *sin;
    const int64_t *positions, *blocks, *offsets;
    int64_t n_tokens, n_heads, n_kv_heads, width, block;
};

template <typename T>
void rotate(T* out, const T* x, const float* cos, const float* sin, int64_t half) {
    if (!cos) {
        std::memcpy(out, x, 2 * half * sizeof(T));
        return;
    }
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
void rotary_write(const Word* a, const Team& team) {
    const Rows<T>& r = *reinterpret_cast<const Rows<T>*>(a);
    const int64_t half = r.width / 2;
    int64_t begin, end;
    team.share(r.n_tokens, begin, end);
    for (int64_t t = begin; t < end; ++t) {
        const int64_t angle = r.positions[t] * half;
        const float *cos = r.cos ? r.cos + angle : nullptr, *sin = r.sin + angle;
        for (int64_t h = 0; h < r.n_heads; ++h)
            rotate(r.q_out + (t * r.n_heads + h) * r.width, r.q + t * r.q_stride + h * r.width, cos, sin, half);
        if (r.blocks[t] < 0) continue;
        for (int64_t h = 0; h < r.n_kv_heads; ++h) {
            const int64_t slot = ((r.blocks[t] * r.n_kv_heads + h) * r.block + r.offsets[t]) * r.width;
            rotate(r.k_cache + slot, r.k + t * r.k_stride + h * r.width, cos, sin, half);
            std::memcpy(r.v_cache + slot, r.v + t * r.v_stride + h * r.width, r.width * sizeof(T));
        }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void rotary_write_bf16(const Word* a, const Team& team) { rotary_write<bf16>(a, team); }
LORIKEET_EXPORT void rotary_write_f32(const Word* a, const Team& team) { rotary_write<float>(a, team); }
