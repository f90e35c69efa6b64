// Decode attention over pages: each page is read where it lies, once for all query heads of its KV head.
//
// A row's context is cut into spans of a fixed number of tokens, whoever else is in the batch, and the spans' partial
// results are put together in order: what a row gets does not depend on its companions, down to the last bit.
#include <algorithm>
#include <cmath>
#include <vector>

#include "threads.h"
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
    float scale;
};

// Partial results of one query head over one span: largest score, sum of exp(score - largest), and that times V.
struct Partial {
    float *top, *total, *acc;
};

template <typename T, int G>
void scores_of(const T* k, const float* q, int64_t width, int64_t n, float (*scores)[LANES]) {
    for (int64_t i = 0; i < n; ++i) {
        vf acc[G] = {};
        for (int64_t d = 0; d < width; d += LANES) {
            vf key = load(k + i * width + d);
            for (int g = 0; g < G; ++g) acc[g] += load(q + g * width + d) * key;
        }
        for (int g = 0; g < G; ++g) scores[g][i] = sum(acc[g]);
    }
}

// Scores become weights relative to the new largest score; what was summed before is brought to the same footing.
inline void weigh(float* scores, int64_t n, const Partial& p, int64_t width) {
    for (int64_t i = n; i < LANES; ++i) scores[i] = NOTHING;
    vf s = load(scores);
    const float top = std::max(*p.top, largest(s));
    vf weights = exp(s - top);
    store(scores, weights);
    if (n < LANES) {
        for (int64_t i = n; i < LANES; ++i) scores[i] = 0.0f;
        weights = load(scores);
    }
    if (top > *p.top) {
        const float factor = std::exp(*p.top - top);
        *p.total *= factor;
        for (int64_t d = 0; d < width; d += LANES) store(p.acc + d, factor * load(p.acc + d));
        *p.top = top;
    }
    *p.total += sum(weights);
}

template <typename T, int G>
void attend_span(const Pages<T>& pages, int64_t row, int64_t kv_head, int64_t first, int64_t end, const float* q,
                 Partial* parts) {
    const int64_t width = pages.width, block = pages.block;
    for (int g = 0; g < G; ++g) {
        *parts[g].top = NOTHING, *parts[g].total = 0.0f;
        std::fill(parts[g].acc, parts[g].acc + width, 0.0f);
    }
    alignas(64) float scores[G][LANES];
    int64_t n;
    for (int64_t t = first; t < end; t += n) {
        const int64_t offset = t % block;
        n = std::min({LANES, block - offset, end - t});
        const int64_t page = pages.tables[row * pages.table_stride + t / block];
        const int64_t at = ((page * pages.n_kv_heads + kv_head) * block + offset) * width;
        scores_of<T, G>(pages.k + at, q, width, n, scores);
        for (int g = 0; g < G; ++g) weigh(scores[g], n, parts[g], width);
        for (int64_t d = 0; d < width; d += LANES) {
            vf acc[G];
            for (int g = 0; g < G; ++g) acc[g] = load(parts[g].acc + d);
            for (int64_t i = 0; i < n; ++i) {
                vf value = load(pages.v + at + i * width + d);
                for (int g = 0; g < G; ++g) acc[g] += scores[g][i] * value;
            }
            for (int g = 0; g < G; ++g) store(parts[g].acc + d, acc[g]);
        }
    }
}

template <typename T>
using Attend = void (*)(const Pages<T>&, int64_t, int64_t, int64_t, int64_t, const float*, Partial*);

template <typename T>
constexpr Attend<T> ATTEND[MAX_GROUP] = {attend_span<T, 1>, attend_span<T, 2>, attend_span<T, 3>, attend_span<T, 4>,
                                         attend_span<T, 5>, attend_span<T, 6>, attend_span<T, 7>, attend_span<T, 8>};

struct Unit {
    int64_t row, kv_head, first, end;
    int64_t part;  // index of the partial results of its first head
};

template <typename T>
void attend_unit(const Pages<T>& pages, const Unit& unit, const T* q, int64_t q_stride, float* scratch) {
    const int64_t group = pages.n_heads / pages.n_kv_heads, width = pages.width, size = width + LANES;
    alignas(64) float queries[MAX_GROUP * 512];
    for (int64_t g = 0; g < group; g += MAX_GROUP) {
        const int64_t n = std::min(MAX_GROUP, group - g);
        const T* source = q + unit.row * q_stride + (unit.kv_head * group + g) * width;
        for (int64_t d = 0; d < n * width; d += LANES) store(queries + d, load(source + d) * pages.scale);
        Partial parts[MAX_GROUP];
        for (int64_t i = 0; i < n; ++i) {
            float* p = scratch + (unit.part + g + i) * size;
            parts[i] = {p, p + 1, p + LANES};
        }
        ATTEND<T>[n - 1](pages, unit.row, unit.kv_head, unit.first, unit.end, queries, parts);
    }
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
        store(out + d, sum / total);
    }
}

template <typename T>
void decode(const Pages<T>& pages, const T* q, int64_t q_stride, T* out, int64_t n_rows) {
    static thread_local std::vector<Unit> units;
    static thread_local std::vector<float> values;
    static thread_local std::vector<int64_t> starts;
    const int64_t group = pages.n_heads / pages.n_kv_heads, width = pages.width, size = width + LANES;
    units.clear();
    starts.clear();
    int64_t n_parts = 0;
    for (int64_t row = 0; row < n_rows; ++row) {
        const int64_t context = pages.contexts[row];
        const int64_t first = pages.window ? std::max<int64_t>(0, context - pages.window) : 0;
        starts.push_back(n_parts);
        for (int64_t span = first / SPAN; span * SPAN < context; ++span, n_parts += pages.n_heads)
            for (int64_t head = 0; head < pages.n_kv_heads; ++head)
                units.push_back({row, head, std::max(first, span * SPAN), std::min(context, (span + 1) * SPAN),
                                 n_parts + head * group});
    }
    starts.push_back(n_parts);
    if (int64_t(values.size()) < n_parts * size) values.resize(n_parts * size);
    const Unit* all = units.data();
    const int64_t n_units = units.size(), *start = starts.data();
    float* scratch = values.data();
#pragma omp parallel
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < n_units; ++i) attend_unit(pages, all[i], q, q_stride, scratch);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n_rows * pages.n_heads; ++i) {
            const int64_t row = i / pages.n_heads, head = i % pages.n_heads;
            const int64_t n_spans = (start[row + 1] - start[row]) / pages.n_heads;
            combine(scratch + (start[row] + head) * size, n_spans, pages.n_heads, width, out + i * width);
        }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

#define LORIKEET_DECODE(NAME, T)                                                                                     \
    LORIKEET_EXPORT void NAME(const T* q, int64_t q_stride, T* out, const T* k, const T* v, const int64_t* tables,        \
                         int64_t table_stride, const int64_t* contexts, int64_t n_rows, int64_t n_heads,             \
                         int64_t n_kv_heads, int64_t width, int64_t block, int64_t window, float scale) {            \
        decode<T>({k, v, tables, contexts, table_stride, n_heads, n_kv_heads, width, block, window, scale}, q,       \
                  q_stride, out, n_rows);                                                                            \
    }

LORIKEET_DECODE(decode_attention_bf16, bf16)
LORIKEET_DECODE(decode_attention_f32, float)
