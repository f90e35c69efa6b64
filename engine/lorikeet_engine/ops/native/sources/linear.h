// x W^T for few rows and many: weights in panels of 48 columns (see panel.h), the last one narrower.
//
// A thread reads its panels front to back exactly once for every 64 rows. What a kernel is called with, P, says where
// x, the weights and the result lie, and how a sum becomes an output.
#pragma once

#include <algorithm>

#include "panel.h"
#include "team.h"

namespace lorikeet {

constexpr int64_t PANEL = 48, TILE_ROWS = 8, BLOCK_ROWS = 64, AHEAD = 6144;

template <int M, int N, typename P, typename W>
void tile(const P& p, const W* w, int64_t row, int64_t column) {
    vf acc[M][N] = {};
    multiply(p.x + row * p.x_stride, p.x_stride, w, p.n_in, AHEAD, acc);
    for (int n = 0; n < N; ++n) {
        const int64_t c = column + n * LANES;
        for (int m = 0; m < M; ++m) store(p.out + (row + m) * p.out_stride + c, p.finish(acc[m][n], c));
    }
}

template <int N, typename P, typename W>
void rows(const P& p, const W* w, int64_t row, int64_t end, int64_t column) {
    for (; row + TILE_ROWS <= end; row += TILE_ROWS) tile<TILE_ROWS, N>(p, w, row, column);
    switch (end - row) {
        case 7: return tile<7, N>(p, w, row, column);
        case 6: return tile<6, N>(p, w, row, column);
        case 5: return tile<5, N>(p, w, row, column);
        case 4: return tile<4, N>(p, w, row, column);
        case 3: return tile<3, N>(p, w, row, column);
        case 2: return tile<2, N>(p, w, row, column);
        case 1: return tile<1, N>(p, w, row, column);
        default: return;
    }
}

template <typename P>
void linear(const P& p, const Team& team) {
    const int64_t n_panels = ceil_div(p.n_out, PANEL);
    int64_t begin, end;
    team.share(n_panels * ceil_div(p.n_rows, BLOCK_ROWS), begin, end);
    for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t column = unit % n_panels * PANEL, row = unit / n_panels * BLOCK_ROWS;
        const int64_t last = std::min(p.n_rows, row + BLOCK_ROWS);
        const auto* w = p.weight + column * p.n_in;
        switch (std::min(PANEL, p.n_out - column) / LANES) {
            case 3: rows<3>(p, w, row, last, column); break;
            case 2: rows<2>(p, w, row, last, column); break;
            default: rows<1>(p, w, row, last, column);
        }
    }
}

}  // namespace lorikeet
