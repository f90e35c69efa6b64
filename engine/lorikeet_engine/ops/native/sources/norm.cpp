// Root-mean-square norm in one pass, with the residual added on the way when there is one.
#include <cmath>

#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t WORTH_THREADS = 1 << 16;  // elements from which a second thread gains more than its start costs

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

template <typename T>
void norm(T* out, T* total, const T* x, const T* residual, const T* weight, int64_t n_rows, int64_t width, float eps) {
#pragma omp parallel for schedule(static) if (n_rows * width >= WORTH_THREADS)
    for (int64_t row = 0; row < n_rows; ++row) {
        const int64_t at = row * width;
        norm_row(out + at, residual ? total + at : nullptr, x + at, residual ? residual + at : nullptr, weight, width,
                 eps);
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

#define LORIKEET_NORM(NAME, T) \
    LORIKEET_EXPORT void NAME(T* out, T* total, const T* x, const T* residual, const T* weight, int64_t n_rows, \
                         int64_t width, float eps) { \
        norm<T>(out, total, x, residual, weight, n_rows, width, eps); \
    }

LORIKEET_NORM(norm_bf16, bf16)
LORIKEET_NORM(norm_f32, float)
