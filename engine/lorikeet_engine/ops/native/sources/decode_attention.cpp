// Decode attention over pages: each page is read where it lies, once for all query heads of its KV head.
//
// A row's context is cut into spans of a fixed number of tokens, whoever else is in the batch, and the spans' partial
// results are put together in order: what a row gets does not depend on its companions, down to the last bit.
#include <algorithm>
#include <cmath>
#include <vector>

#include "team.h"
#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t SPAN = 128, MAX_GROUP = 8;
constexpr float NOTHING = -INFINITY;

template <typename T>
struct Pages {
    const T *k, *v;
    const int64_t *tables, *contexts;
    int64_t table_stride, n_heads, n_kv_heads, width, block, window;
    double scale;
};

// Partial results of one query head over one span: largest score, sum of exp(score - largest), and that times V.
struct Partial {
    float *top, *total, *acc;
};

template <typename T>
inline void prefetch(const T* row, int64_t width) {
    for (int64_t d = 0; d < width; d += 64 / int64_t(sizeof(T))) __builtin_prefetch(row + d);
}

// W is the width where it is known when compiling, so that a whole chunk's dot products stay in registers; else 0.
// `ahead`: how far away the next page lies. Pages lie anywhere, so the hardware does not see the next one coming; it is
// fetched row by row beside the work on this one, 0 for not at all.
template <typename T, int W>
vf scores_of(const T* k, const T* q, int64_t width, int64_t n, float scale, int64_t ahead) {
    const int64_t d = W ? W : width;
    vf part[LANES];
    if (n == LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; ++i) {
            if (ahead) prefetch(k + i * d + ahead, d);
            part[i] = dot(k + i * d, q, d);
        }
    } else {
        for (int i = 0; i < LANES; ++i) part[i] = i < n ? dot(k + i * d, q, d) : vf{};
    }
    return sums(part) * scale;
}

constexpr vi INDEX = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Scores become weights relative to the new largest score; what was summed before is brought to the same footing.
inline vf weigh(vf scores, int64_t n, const Partial& p, int64_t width) {
    const vi real = INDEX < int32_t(n);
    scores = real ? scores : splat(NOTHING);
    const float top = std::max(*p.top, largest(scores));
    vf weights = real ? exp(scores - top) : vf{};
    if (top > *p.top) {
        const float factor = std::exp(*p.top - top);
        *p.total *= factor;
        for (int64_t d = 0; d < width; d += LANES) store(p.acc + d, factor * load(p.acc + d));
        *p.top = top;
    }
    *p.total += sum(weights);
    return weights;
}

// acc[g] += weights[g] V over D vectors of the width.
template <typename T, int G, int D>
void mix(const T* v, int64_t width, int64_t n, const float (*weights)[LANES], const Partial* parts, int64_t at,
         int64_t ahead) {
    vf acc[G][D];
    for (int g = 0; g < G; ++g)
        for (int d = 0; d < D; ++d) acc[g][d] = load(parts[g].acc + at + d * LANES);
    for (int64_t i = 0; i < n; ++i) {
        if (ahead) prefetch(v + i * width + at + ahead, D * LANES);
        for (int d = 0; d < D; ++d) {
            vf value = load(v + i * width + at + d * LANES);
            for (int g = 0; g < G; ++g) acc[g][d] += weights[g][i] * value;
        }
    }
    for (int g = 0; g < G; ++g)
        for (int d = 0; d < D; ++d) store(parts[g].acc + at + d * LANES, acc[g][d]);
}

template <typename T, int G, int W>
void attend_chunk(const T* k, const T* v, const T* q, int64_t width, int64_t n, float scale, int64_t ahead,
                  const Partial* parts) {
    constexpr int D = G <= 6 ? 4 : 2;  // as many as the registers hold
    alignas(64) float weights[G][LANES];
    for (int g = 0; g < G; ++g) {
        vf s = scores_of<T, W>(k, q + g * width, width, n, scale, g ? 0 : ahead);
        store(weights[g], weigh(s, n, parts[g], width));
    }
    int64_t d = 0;
    for (; d + D * LANES <= width; d += D * LANES) mix<T, G, D>(v, width, n, weights, parts, d, ahead);
    for (; d < width; d += LANES) mix<T, G, 1>(v, width, n, weights, parts, d, ahead);
}

// Some consecutive KV heads of one row over one span, page by page: their parts of a page lie side by side.
struct Unit {
    int64_t row, kv_first, kv_end, first, end;
    int64_t part;  // index of the partial results of the row's first head in this span
};

// Query heads [g, g + G) of each group.
template <typename T, int G, int W>
void attend_span(const Pages<T>& pages, const Unit& unit, int64_t g, const T* q, float* scratch) {
    const int64_t width = W ? W : pages.width, block = pages.block, group = pages.n_heads / pages.n_kv_heads;
    const int64_t* table = pages.tables + unit.row * pages.table_stride;
    auto address = [&](int64_t t) { return (table[t / block] * pages.n_kv_heads * block + t % block) * width; };
    auto parts_of = [&](int64_t kv_head, Partial* parts) {
        for (int i = 0; i < G; ++i) {
            float* p = scratch + (unit.part + kv_head * group + g + i) * (width + LANES);
            parts[i] = {p, p + 1, p + LANES};
        }
    };
    Partial parts[G];
    for (int64_t head = unit.kv_first; head < unit.kv_end; ++head) {
        parts_of(head, parts);
        for (int i = 0; i < G; ++i) {
            *parts[i].top = NOTHING, *parts[i].total = 0.0f;
            std::fill(parts[i].acc, parts[i].acc + width, 0.0f);
        }
    }
    int64_t n;
    for (int64_t t = unit.first; t < unit.end; t += n) {
        n = std::min({LANES, block - t % block, unit.end - t});
        const int64_t at = address(t), ahead = t + n < unit.end ? address(t + n) - at : 0;
        for (int64_t head = unit.kv_first; head < unit.kv_end; ++head) {
            parts_of(head, parts);
            const int64_t here = at + head * block * width;
            attend_chunk<T, G, W>(pages.k + here, pages.v + here, q + (head * group + g) * width, width, n,
                                  float(pages.scale), ahead, parts);
        }
    }
}

template <typename T>
using Attend = void (*)(const Pages<T>&, const Unit&, int64_t, const T*, float*);

template <typename T, int W>
Attend<T> attend_for(int64_t group) {
    static constexpr Attend<T> all[MAX_GROUP] = {
        attend_span<T, 1, W>, attend_span<T, 2, W>, attend_span<T, 3, W>, attend_span<T, 4, W>,
        attend_span<T, 5, W>, attend_span<T, 6, W>, attend_span<T, 7, W>, attend_span<T, 8, W>,
    };
    return all[group - 1];
}

template <typename T>
Attend<T> attend_for(int64_t group, int64_t width) {
    return width == 64 ? attend_for<T, 64>(group) : width == 128 ? attend_for<T, 128>(group) : attend_for<T, 0>(group);
}

template <typename T>
void attend_unit(const Pages<T>& pages, const Unit& unit, const T* q, int64_t q_stride, float* scratch) {
    const int64_t group = pages.n_heads / pages.n_kv_heads;
    for (int64_t g = 0; g < group; g += MAX_GROUP)
        attend_for<T>(std::min(MAX_GROUP, group - g), pages.width)(pages, unit, g, q + unit.row * q_stride, scratch);
}

// One head's output from its spans; consecutive spans of a head lie `step` partial results apart.
template <typename T>
void combine(const float* part, int64_t n_spans, int64_t step, int64_t width, T* out) {
    const int64_t size = width + LANES;
    float top = NOTHING, total = 0.0f;
    for (int64_t s = 0; s < n_spans; ++s) top = std::max(top, part[s * step * size]);
    for (int64_t s = 0; s < n_spans; ++s) total += std::exp(part[s * step * size] - top) * part[s * step * size + 1];
    for (int64_t d = 0; d < width; d += LANES) {
        vf sum = {};
        for (int64_t s = 0; s < n_spans; ++s) {
            const float* p = part + s * step * size;
            sum += std::exp(p[0] - top) * load(p + LANES + d);
        }
        store(out + d, n_spans ? sum / total : sum);
    }
}

template <typename T>
struct Call {
    T* out;
    const T* q;
    int64_t q_stride, n_rows;
    Pages<T> pages;
};

template <typename T>
void decode_attention(const Word* words, const Team& team) {
    static Scratch<float> values;
    static thread_local std::vector<Unit> units;
    static thread_local std::vector<int64_t> starts;  // of each row's partial results
    const Call<T>& call = *reinterpret_cast<const Call<T>*>(words);
    const Pages<T>& pages = call.pages;
    const int64_t width = pages.width, size = width + LANES;
    units.clear();
    starts.clear();
    // All KV heads together read memory best; rows too few to share out among the threads are cut into heads.
    const int64_t n_heads = call.n_rows >= 2 * team.n_threads ? pages.n_kv_heads : 1;
    int64_t n_parts = 0, n_tokens = 0;
    for (int64_t row = 0; row < call.n_rows; ++row) {
        const int64_t context = pages.contexts[row];
        const int64_t first = pages.window ? std::max<int64_t>(0, context - pages.window) : 0;
        starts.push_back(n_parts);
        for (int64_t span = first / SPAN; span * SPAN < context; ++span, n_parts += pages.n_heads)
            for (int64_t head = 0; head < pages.n_kv_heads; head += n_heads) {
                units.push_back({row, head, head + n_heads, std::max(first, span * SPAN),
                                 std::min(context, (span + 1) * SPAN), n_parts});
                n_tokens += units.back().end - units.back().first;
            }
    }
    starts.push_back(n_parts);
    float* scratch = values.get(team, n_parts * size);
    // Consecutive units go to one thread, each where its middle lies.
    int64_t before = 0;
    for (const Unit& unit : units) {
        const int64_t n = unit.end - unit.first;
        if ((2 * before + n) * team.n_threads / (2 * n_tokens) == team.thread)
            attend_unit(pages, unit, call.q, call.q_stride, scratch);
        before += n;
    }
    team.wait();
    int64_t begin, end;
    team.share(call.n_rows * pages.n_heads, begin, end);
    for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / pages.n_heads, head = i % pages.n_heads;
        const int64_t n_spans = (starts[row + 1] - starts[row]) / pages.n_heads;
        combine(scratch + (starts[row] + head) * size, n_spans, pages.n_heads, width, call.out + i * width);
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void decode_attention_bf16(const Word* a, const Team& team) { decode_attention<bf16>(a, team); }
LORIKEET_EXPORT void decode_attention_f32(const Word* a, const Team& team) { decode_attention<float>(a, team); }
