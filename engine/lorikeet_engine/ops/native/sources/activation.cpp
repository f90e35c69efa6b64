// silu(gate) * up of rows that hold gate | up.
#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t WORTH_THREADS = 1 << 15;

template <typename T>
void silu_mul(T* out, const T* gate_up, int64_t n_rows, int64_t width) {
#pragma omp parallel for schedule(static) if (n_rows * width >= WORTH_THREADS)
    for (int64_t row = 0; row < n_rows; ++row) {
        const T *gate = gate_up + 2 * row * width, *up = gate + width;
        for (int64_t i = 0; i < width; i += LANES) {
            vf g = load(gate + i);
            store(out + row * width + i, through<T>(g / (exp(-g) + 1.0f)) * load(up + i));
        }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void silu_mul_bf16(bf16* out, const bf16* gate_up, int64_t n_rows, int64_t width) {
    silu_mul(out, gate_up, n_rows, width);
}

LORIKEET_EXPORT void silu_mul_f32(float* out, const float* gate_up, int64_t n_rows, int64_t width) {
    silu_mul(out, gate_up, n_rows, width);
}
