// silu(gate) * up of rows that hold gate | up.
#include "team.h"
#include "vec.h"

namespace lorikeet {
namespace {

// out, gate_up, n_rows, width
template <typename T>
void silu_mul(const Word* a, const Team& team) {
    T* out = static_cast<T*>(a[0].p);
    const T* gate_up = static_cast<const T*>(a[1].p);
    const int64_t width = a[3].n, per_row = width / LANES;
    int64_t begin, end;
    team.share(a[2].n * per_row, begin, end);
    for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t row = unit / per_row, i = unit % per_row * LANES;
        const T* gate = gate_up + 2 * row * width + i;
        const vf g = load(gate);
        store(out + row * width + i, through<T>(g / (exp(-g) + 1.0f)) * load(gate + width));
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void silu_mul_bf16(const Word* a, const Team& team) { silu_mul<bf16>(a, team); }
LORIKEET_EXPORT void silu_mul_f32(const Word* a, const Team& team) { silu_mul<float>(a, team); }
