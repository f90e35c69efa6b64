// Root-mean-square norm, with the residual added on the way when there is one.
#include <cmath>

#include "team.h"
#include "vec.h"

namespace lorikeet {
namespace {

template <typename T>
void norm_row(T* out, T* total, const T* x, const T* residual, const T* weight, int64_t width, float eps) {
    vf squares = {};
    for (int64_t i = 0; i < width; i += LANES) {
        vf v = load(x + i);
        if (residual) {
            store(total + i, v + load(residual + i));
            v = load(total + i);
        }
        squares += v * v;
    }
    const float scale = 1.0f / std::sqrt(sum(squares) / float(width) + eps);
    const T* source = residual ? total : x;
    for (int64_t i = 0; i < width; i += LANES) store(out + i, through<T>(load(source + i) * scale) * load(weight + i));
}

// out, total or 0, x, stride of x, residual or 0, weight, n_rows, width, eps, heads: a row of x is `heads` rows of
// `width` side by side
template <typename T>
void norm(const Word* a, const Team& team) {
    T *out = static_cast<T*>(a[0].p), *total = static_cast<T*>(a[1].p);
    const T *x = static_cast<const T*>(a[2].p), *residual = static_cast<const T*>(a[4].p);
    const T* weight = static_cast<const T*>(a[5].p);
    const int64_t width = a[7].n, heads = a[9].n;
    int64_t begin, end;
    team.share(a[6].n * heads, begin, end);
    for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * width;
        norm_row(out + at, residual ? total + at : nullptr, x + row / heads * a[3].n + row % heads * width,
                 residual ? residual + at : nullptr, weight, width, float(a[8].f));
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void norm_bf16(const Word* a, const Team& team) { norm<bf16>(a, team); }
LORIKEET_EXPORT void norm_f32(const Word* a, const Team& team) { norm<float>(a, team); }
