// x W^T with weights of x's own type; linear.h does the work.
#include "linear.h"

namespace lorikeet {
namespace {

template <typename T>
struct Product {
    T* out;
    int64_t out_stride;
    const T* x;
    int64_t x_stride;
    const T *weight, *bias;
    int64_t n_rows, n_in, n_out;

    vf finish(vf sum, int64_t column) const { return bias ? sum + load(bias + column) : sum; }
};

template <typename T>
void product(const Word* words, const Team& team) {
    linear(*reinterpret_cast<const Product<T>*>(words), team);
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void linear_bf16(const Word* a, const Team& team) { product<bf16>(a, team); }
LORIKEET_EXPORT void linear_f32(const Word* a, const Team& team) { product<float>(a, team); }
