// x W^T for few rows and many: weights in panels of 48 columns (see panel.h), the last one narrower.
//
// A thread reads its panels front to back exactly once for every 64 rows.
#include <algorithm>

#include "panel.h"
#include "team.h"

namespace lorikeet {
namespace {

constexpr int64_t PANEL = 48, TILE_ROWS = 8, BLOCK_ROWS = 64, AHEAD = 2048;

template <typename T>
struct Product {
    T* out;
    int64_t out_stride;
    const T* x;
    int64_t x_stride;
    const T *weight, *bias;
    int64_t n_rows, n_in, n_out;
};

template <typename T, int M, int N>
void tile(const Product<T>& p, const T* w, int64_t row, int64_t column) {
    vf acc[M][N] = {};
    multiply(p.x + row * p.x_stride, p.x_stride, w, p.n_in, AHEAD, acc);
    for (int n = 0; n < N; ++n) {
        const int64_t c = column + n * LANES;
        const vf bias = p.bias ? load(p.bias + c) : vf{};
        for (int m = 0; m < M; ++m) store(p.out + (row + m) * p.out_stride + c, acc[m][n] + bias);
    }
}

template <typename T, int N>
void rows(const Product<T>& p, const T* w, int64_t row, int64_t end, int64_t column) {
    for (; row + TILE_ROWS <= end; row += TILE_ROWS) tile<T, TILE_ROWS, N>(p, w, row, column);
    switch (end - row) {
        case 7: return tile<T, 7, N>(p, w, row, column);
        case 6: return tile<T, 6, N>(p, w, row, column);
        case 5: return tile<T, 5, N>(p, w, row, column);
        case 4: return tile<T, 4, N>(p, w, row, column);
        case 3: return tile<T, 3, N>(p, w, row, column);
        case 2: return tile<T, 2, N>(p, w, row, column);
        case 1: return tile<T, 1, N>(p, w, row, column);
        default: return;
    }
}

template <typename T>
void linear(const Word* words, const Team& team) {
    const Product<T>& p = *reinterpret_cast<const Product<T>*>(words);
    const int64_t n_panels = ceil_div(p.n_out, PANEL);
    int64_t begin, end;
    team.share(n_panels * ceil_div(p.n_rows, BLOCK_ROWS), begin, end);
    for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t column = unit % n_panels * PANEL, row = unit / n_panels * BLOCK_ROWS;
        const int64_t last = std::min(p.n_rows, row + BLOCK_ROWS);
        const T* w = p.weight + column * p.n_in;
        switch (std::min(PANEL, p.n_out - column) / LANES) {
            case 3: rows<T, 3>(p, w, row, last, column); break;
            case 2: rows<T, 2>(p, w, row, last, column); break;
            default: rows<T, 1>(p, w, row, last, column);
        }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void linear_bf16(const Word* a, const Team& team) { linear<bf16>(a, team); }
LORIKEET_EXPORT void linear_f32(const Word* a, const Team& team) { linear<float>(a, team); }
