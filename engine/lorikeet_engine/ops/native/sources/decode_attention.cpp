// Decode attention over pages: each page is read where it lies, once for all query heads of its KV head.
//
// A row's context is cut into spans of a fixed number of tokens, whoever else is in the batch, and the spans' partial
// results are put together in order: what a row gets does not depend on its companions, down to the last bit.
#include <cmath>

#include "team.h"
#include "vec.h"

namespace lorikeet {
namespace {

constexpr int64_t SPAN = 128, MAX_GROUP = 8;
constexpr int GROUPS = SPAN / LANES;  // of tokens

template <typename T>
struct Pages {
    const T *k, *v;
    const int64_t *tables, *contexts;
    int64_t table_stride, n_heads, n_kv_heads, width, block, window;
    double scale;

    // Elements from a cache's start to a token of a row, for KV head 0; the next head lies `block * width` further.
    int64_t address(int64_t row, int64_t t) const {
        return (tables[row * table_stride + t / block] * n_kv_heads * block + t % block) * width;
    }
};

// Some consecutive KV heads of one row over one span.
struct Unit {
    int64_t row, kv_first, kv_end, first, end;
    int64_t part;  // index of the partial results of the row's first head in this span
};

// Tokens that lie together in memory: pages lie anywhere, so nothing but us knows which comes next.
struct Piece {
    int64_t at, n;
};

template <typename T>
int64_t pieces_of(const Pages<T>& pages, const Unit& unit, Piece* pieces) {
    int64_t count = 0, n;
    for (int64_t t = unit.first; t < unit.end; t += n) {
        n = std::min(pages.block - t % pages.block, unit.end - t);
        pieces[count++] = {pages.address(unit.row, t), n};
    }
    return count;
}

template <typename T>
inline void prefetch(const T* from, int64_t count) {
    for (int64_t d = 0; d < count; d += 64 / int64_t(sizeof(T))) __builtin_prefetch(from + d, 0, 2);
}

// Keys or values of a head and span, fetched token by token beside the work on those before.
template <typename T>
struct Upcoming {
    const T* from;
    const Piece* pieces;
    int64_t n_pieces, width, token = 0;

    void fetch() {
        if (n_pieces == 0) return;
        prefetch(from + pieces->at + token * width, width);
        if (++token == pieces->n) ++pieces, --n_pieces, token = 0;
    }
};

// Scores of up to 16 tokens for one query head. W is the width where it is known when compiling, so that all dot
// products stay in registers; else 0.
template <typename T, int W>
vf scores_of(const T* k, const T* q, int64_t width, int64_t n) {
    const int64_t d = W ? W : width;
    vf part[LANES];
    if (n == LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; ++i) part[i] = dot(k + i * d, q, d);
    } else {
        for (int i = 0; i < LANES; ++i) part[i] = i < n ? dot(k + i * d, q, d) : vf{};
    }
    return sums(part);
}

// What one query head makes of a span: its scores, and its weights in the values' type. Room for a group more, since
// groups are stored whole.
template <typename T>
struct Weights {
    alignas(64) float scores[SPAN + LANES];
    alignas(64) T weights[SPAN + LANES];
};

// Scores become exp(score - largest); returns the largest and the sum.
template <typename T>
void weigh(Weights<T>& w, int64_t n, float scale, float& top, float& total) {
    vf s[GROUPS], best = splat(NOTHING), sum_of = {};
    const int64_t groups = ceil_div(n, LANES);
    for (int64_t i = 0; i < groups; ++i) {
        s[i] = load(w.scores + i * LANES) * scale;
        if ((i + 1) * LANES > n) s[i] = INDEX < int32_t(n - i * LANES) ? s[i] : splat(NOTHING);
        best = s[i] > best ? s[i] : best;
    }
    top = largest(best);
    for (int64_t i = 0; i < groups; ++i) {
        const vf weight = s[i] == NOTHING ? vf{} : exp(s[i] - top);
        sum_of += weight;
        store(w.weights + i * LANES, weight);
    }
    store(w.weights + groups * LANES, vf{});  // the other half of a pair whose token is the last
    total = sum(sum_of);
}

// acc[g] += weights[g] V over COLUMNS vectors of the width, tokens in order.
template <typename T, int G, int COLUMNS>
struct Mix {
    static constexpr int64_t TOKENS = 1;
    vf acc[G][COLUMNS] = {};

    void add(const T* first, const T*, const Weights<T>* w, int64_t t) {
        for (int c = 0; c < COLUMNS; ++c) {
            const vf value = load(first + c * LANES);
            for (int g = 0; g < G; ++g) acc[g][c] += widen(w[g].weights[t]) * value;
        }
    }
    void put(int g, float* target) const {
        for (int c = 0; c < COLUMNS; ++c) store(target + c * LANES, acc[g][c]);
    }
};

#if defined(__AVX512BF16__)
// Two tokens at a time. Interleaving their rows works inside 128-bit lanes, so sums are kept in its order (low: the
// first half of each lane's columns) until they are put.
template <int G, int COLUMNS>
struct Mix<bf16, G, COLUMNS> {
    static constexpr int64_t TOKENS = 2;
    static_assert(COLUMNS % 2 == 0);
    __m512 acc[G][COLUMNS] = {};

    void add(const bf16* first, const bf16* second, const Weights<bf16>* w, int64_t t) {
        for (int c = 0; c < COLUMNS; c += 2) {
            const __m512i a = _mm512_loadu_si512(first + c * LANES);
            const __m512i b = second ? _mm512_loadu_si512(second + c * LANES) : _mm512_setzero_si512();
            const __m512bh low = (__m512bh)_mm512_unpacklo_epi16(a, b), high = (__m512bh)_mm512_unpackhi_epi16(a, b);
            for (int g = 0; g < G; ++g) {
                int32_t pair;
                std::memcpy(&pair, w[g].weights + t, sizeof pair);
                const __m512bh weight = (__m512bh)_mm512_set1_epi32(pair);
                acc[g][c] = _mm512_dpbf16_ps(acc[g][c], weight, low);
                acc[g][c + 1] = _mm512_dpbf16_ps(acc[g][c + 1], weight, high);
            }
        }
    }
    void put(int g, float* target) const {
        for (int c = 0; c < COLUMNS; c += 2) {
            const vf low = (vf)acc[g][c], high = (vf)acc[g][c + 1];
            store(target + c * LANES,
                  __builtin_shufflevector(low, high, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
            store(target + (c + 1) * LANES,
                  __builtin_shufflevector(low, high, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31));
        }
    }
};

// A width of an odd number of vectors ends with one that has no pair.
template <int G>
struct Mix<bf16, G, 1> {
    static constexpr int64_t TOKENS = 1;
    vf acc[G] = {};
    void add(const bf16* first, const bf16*, const Weights<bf16>* w, int64_t t) {
        for (int g = 0; g < G; ++g) acc[g] += widen(w[g].weights[t]) * load(first);
    }
    void put(int g, float* target) const { store(target, acc[g]); }
};
#endif

template <typename T, int G, int COLUMNS>
void mix(const T* v, int64_t width, const Piece* pieces, int64_t n_pieces, const Weights<T>* weights, float* parts,
         int64_t part_size, Upcoming<T>& next) {
    using M = Mix<T, G, COLUMNS>;
    M sum;
    for (int64_t i = 0, t = 0; i < n_pieces; ++i) {
        const T* row = v + pieces[i].at;
        int64_t n = 0;
        for (; n + M::TOKENS <= pieces[i].n; n += M::TOKENS, t += M::TOKENS, row += M::TOKENS * width) {
            for (int64_t token = 0; token < M::TOKENS; ++token) next.fetch();
            sum.add(row, row + width, weights, t);
        }
        if (n < pieces[i].n) sum.add(row, nullptr, weights, t++);
    }
    for (int g = 0; g < G; ++g) sum.put(g, parts + g * part_size);
}

// Where one head's keys, values and queries lie, and the keys and values that this thread wants after them: memory is
// read a span ahead, so that it is busy all the time.
template <typename T>
struct Head {
    const T *k, *v, *q;
    Upcoming<T> next_k, next_v;
};

template <typename T, int G, int W>
void attend_head(Head<T>& head, int64_t width, float scale, const Piece* pieces, int64_t n_pieces, float* parts) {
    constexpr int COLUMNS = G <= 6 ? 4 : 2;  // as many as the registers hold
    const int64_t part_size = width + LANES;
    Weights<T> weights[G];
    int64_t t = 0;
    for (int64_t i = 0; i < n_pieces; ++i)
        for (int64_t first = 0; first < pieces[i].n; first += LANES) {
            const int64_t n = std::min(LANES, pieces[i].n - first);
            const T* k = head.k + pieces[i].at + first * width;
            for (int64_t token = 0; token < n; ++token) head.next_k.fetch();
            for (int g = 0; g < G; ++g) {
                vf s = scores_of<T, W>(k, head.q + g * width, width, n);
                std::memcpy(weights[g].scores + t, &s, sizeof s);
            }
            t += n;
        }
    for (int g = 0; g < G; ++g) weigh(weights[g], t, scale, parts[g * part_size], parts[g * part_size + 1]);
    int64_t d = 0;
    float* acc = parts + LANES;
    const T* v = head.v;
    for (; d + COLUMNS * LANES <= width; d += COLUMNS * LANES)
        mix<T, G, COLUMNS>(v + d, width, pieces, n_pieces, weights, acc + d, part_size, head.next_v);
    for (; d + 2 * LANES <= width; d += 2 * LANES)
        mix<T, G, 2>(v + d, width, pieces, n_pieces, weights, acc + d, part_size, head.next_v);
    if (d < width) mix<T, G, 1>(v + d, width, pieces, n_pieces, weights, acc + d, part_size, head.next_v);
}

// Query heads [g, g + G) of each group; `next` is the unit that this thread takes after this one, if any.
template <typename T, int G, int W>
void attend_span(const Pages<T>& pages, const Unit& unit, const Unit* next, int64_t g, const T* q, float* scratch) {
    const int64_t width = W ? W : pages.width, group = pages.n_heads / pages.n_kv_heads, step = pages.block * width;
    Piece pieces[SPAN], next_pieces[SPAN];
    const int64_t n_pieces = pieces_of(pages, unit, pieces);
    const int64_t n_next = next ? pieces_of(pages, *next, next_pieces) : 0;
    for (int64_t head = unit.kv_first; head < unit.kv_end; ++head) {
        const bool is_last = head + 1 == unit.kv_end;
        const int64_t at = (is_last ? (next ? next->kv_first : 0) : head + 1) * step, n = is_last ? n_next : n_pieces;
        const Piece* following = is_last ? next_pieces : pieces;
        Head<T> one{pages.k + head * step,
                    pages.v + head * step,
                    q + (head * group + g) * width,
                    {pages.k + at, following, n, width},
                    {pages.v + at, following, n, width}};
        float* parts = scratch + (unit.part + head * group + g) * (width + LANES);
        attend_head<T, G, W>(one, width, float(pages.scale), pieces, n_pieces, parts);
    }
}

template <typename T>
using Attend = void (*)(const Pages<T>&, const Unit&, const Unit*, int64_t, const T*, float*);

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
void attend_unit(const Pages<T>& pages, const Unit& unit, const Unit* next, const T* q, int64_t q_stride,
                 float* scratch) {
    const int64_t group = pages.n_heads / pages.n_kv_heads;
    q += unit.row * q_stride;
    for (int64_t g = 0; g < group; g += MAX_GROUP)
        attend_for<T>(std::min(MAX_GROUP, group - g), pages.width)(pages, unit, next, g, q, scratch);
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
    for (size_t i = 0; i < units.size(); ++i) {
        const int64_t n = units[i].end - units[i].first;
        const Unit* next = i + 1 < units.size() ? &units[i + 1] : nullptr;
        if ((2 * before + n) * team.n_threads / (2 * n_tokens) == team.thread)
            attend_unit(pages, units[i], next, call.q, call.q_stride, scratch);
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
