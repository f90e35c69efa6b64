// Attention of rows with several query tokens: causal, over a prefix in pages and the row's own tokens alike.
//
// The keys and values of a row are brought into panels once (see panel.h); after that both products are those of a
// linear. The query heads of a KV head are rows of one product. Softmax is kept online over chunks of keys, in float32
// (Dao et al., FlashAttention, 2022, algorithm 1); weights are rounded to the values' type before the second product.
#include <cmath>

#include "panel.h"
#include "team.h"

namespace lorikeet {
namespace {

constexpr int64_t CHUNK = 64;    // keys
constexpr int64_t QUERIES = 32;  // of a unit of work
constexpr int N = CHUNK / LANES, TILE_ROWS = 6;

template <typename T>
struct Call {
    T* out;
    const T* q;
    int64_t q_stride, n_rows;
    const int64_t* starts;  // first query token of each row, and the end
    const T *k, *v;
    const int64_t *tables, *contexts;
    int64_t table_stride, n_heads, n_kv_heads, width, block, window;
    double scale;

    int64_t group() const { return n_heads / n_kv_heads; }
    int64_t n_chunks(int64_t row) const { return ceil_div(contexts[row], CHUNK); }
    // Elements of a chunk's panels, keys and values.
    int64_t chunk_size() const { return 2 * CHUNK * width; }
    const T* slot(const T* cache, int64_t row, int64_t head, int64_t t) const {
        return cache + ((tables[row * table_stride + t / block] * n_kv_heads + head) * block + t % block) * width;
    }
};

// Two rows of values as one line of a panel: element by element side by side, or the one row as it is.
inline void interleave(const float* a, const float*, float* line, int64_t columns) {
    std::memcpy(line, a, columns * sizeof(float));
}

inline void interleave(const bf16* a, const bf16* b, bf16* line, int64_t columns) {
    for (int64_t c = 0; c < columns; c += LANES) {
        vh low, high = {};
        std::memcpy(&low, a + c, sizeof low);
        if (b) std::memcpy(&high, b + c, sizeof high);
        const vu words = __builtin_convertvector(low, vu) | (__builtin_convertvector(high, vu) << 16);
        std::memcpy(static_cast<void*>(line + 2 * c), &words, sizeof words);
    }
}

// Keys: columns are tokens, K is the width. Values: columns are the width, 64 (or what is left) to a panel, K is the
// tokens. Tokens that the row does not have are zero.
template <typename T>
void pack_chunk(const Call<T>& call, int64_t row, int64_t head, int64_t first, T* keys, T* values) {
    constexpr int64_t STEP = Step<T>::STEP;
    const int64_t width = call.width, n = std::min(CHUNK, call.contexts[row] - first);
    if (n < CHUNK) std::memset(static_cast<void*>(keys), 0, call.chunk_size() * sizeof(T));
    for (int64_t t = 0; t < n; ++t) {
        const T* k = call.slot(call.k, row, head, first + t);
        for (int64_t d = 0; d < width; d += STEP) std::memcpy(keys + (d * CHUNK + t * STEP), k + d, sizeof(T) * STEP);
    }
    for (int64_t t = 0; t < n; t += STEP) {
        const T* v = call.slot(call.v, row, head, first + t);
        const T* next = t + STEP - 1 < n ? call.slot(call.v, row, head, first + t + STEP - 1) : nullptr;
        for (int64_t left = 0; left < width; left += CHUNK) {
            const int64_t columns = std::min(CHUNK, width - left);
            interleave(v + left, next ? next + left : nullptr, values + left * CHUNK + t * columns, columns);
        }
    }
}

// What a thread keeps of its unit: R rows = queries x heads of the group.
template <typename T>
struct State {
    std::vector<T> q, weights;
    std::vector<float> scores, acc, top, total;

    void resize(int64_t rows, int64_t width) {
        q.resize(rows * width), weights.resize(rows * CHUNK), scores.resize(rows * CHUNK);
        acc.assign(rows * width, 0.0f), top.assign(rows, NOTHING), total.assign(rows, 0.0f);
    }
};

template <typename T, int M>
void score_rows(const T* q, int64_t width, const T* keys, float scale, float* scores) {
    vf acc[M][N] = {};
    multiply(q, width, keys, width, 0, acc);
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) store(scores + m * CHUNK + n * LANES, acc[m][n] * scale);
}

template <typename T, int M, int COLUMNS>
void mix_rows(const T* weights, const T* values, float* acc, int64_t width) {
    vf sum[M][COLUMNS];
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < COLUMNS; ++n) sum[m][n] = load(acc + m * width + n * LANES);
    multiply(weights, CHUNK, values, CHUNK, 0, sum);
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < COLUMNS; ++n) store(acc + m * width + n * LANES, sum[m][n]);
}

template <typename T, int M>
void mix(const T* weights, const T* values, float* acc, int64_t width) {
    for (int64_t left = 0; left < width; left += CHUNK, values += CHUNK * CHUNK) {
        switch (std::min(CHUNK, width - left) / LANES) {
            case 4: mix_rows<T, M, 4>(weights, values, acc + left, width); break;
            case 3: mix_rows<T, M, 3>(weights, values, acc + left, width); break;
            case 2: mix_rows<T, M, 2>(weights, values, acc + left, width); break;
            default: mix_rows<T, M, 1>(weights, values, acc + left, width);
        }
    }
}

// One row's scores of a chunk become weights; keys outside [low, high) of the chunk are not seen.
template <typename T>
void weigh(float* scores, T* weights, int64_t low, int64_t high, float& top, float& total, float* acc, int64_t width) {
    vf s[N], best = splat(NOTHING);
    for (int n = 0; n < N; ++n) {
        const vi key = INDEX + int32_t(n * LANES);
        s[n] = load(scores + n * LANES);
        if (low > 0 || high < CHUNK) s[n] = (key >= int32_t(low)) & (key < int32_t(high)) ? s[n] : splat(NOTHING);
        best = s[n] > best ? s[n] : best;
    }
    const float now = std::max(top, largest(best));
    if (now == NOTHING) {  // nothing seen so far; a NaN score is not nothing, it stays in the sum below
        bool odd = false;
        for (int64_t i = std::max<int64_t>(low, 0); i < std::min(high, CHUNK); ++i) odd |= scores[i] != scores[i];
        if (!odd) {
            std::memset(static_cast<void*>(weights), 0, CHUNK * sizeof(T));
            return;
        }
    }
    if (now > top) {
        const float factor = std::exp(top - now);
        total *= factor;
        for (int64_t d = 0; d < width; d += LANES) store(acc + d, factor * load(acc + d));
        top = now;
    }
    vf sums = {};
    for (int n = 0; n < N; ++n) {
        const vf w = s[n] == NOTHING ? vf{} : exp(s[n] - now);
        sums += w;
        store(weights + n * LANES, w);
    }
    total += sum(sums);
}

template <typename T>
void attend_unit(const Call<T>& call, int64_t row, int64_t head, int64_t query, int64_t n_queries, const T* panels,
                 State<T>& state) {
    const int64_t width = call.width, group = call.group(), rows = n_queries * group;
    const int64_t first = call.starts[row] + query;
    // The position of the unit's first query, and the keys that its last one sees.
    const int64_t position = call.contexts[row] - (call.starts[row + 1] - first), end = position + n_queries;
    const int64_t start = call.window ? std::max<int64_t>(0, position + 1 - call.window) : 0;
    state.resize(rows, width);
    for (int64_t i = 0; i < n_queries; ++i)
        std::memcpy(state.q.data() + i * group * width, call.q + (first + i) * call.q_stride + head * group * width,
                    group * width * sizeof(T));
    for (int64_t chunk = start / CHUNK; chunk * CHUNK < end; ++chunk) {
        const T *keys = panels + chunk * call.chunk_size(), *values = keys + CHUNK * width;
        const int64_t base = chunk * CHUNK;
        int64_t r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
            score_rows<T, TILE_ROWS>(&state.q[r * width], width, keys, float(call.scale), &state.scores[r * CHUNK]);
        for (; r < rows; ++r)
            score_rows<T, 1>(&state.q[r * width], width, keys, float(call.scale), &state.scores[r * CHUNK]);
        for (r = 0; r < rows; ++r) {
            const int64_t at = position + r / group, low = call.window ? at + 1 - call.window - base : 0;
            weigh(&state.scores[r * CHUNK], &state.weights[r * CHUNK], low, at + 1 - base, state.top[r],
                  state.total[r], &state.acc[r * width], width);
        }
        r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
            mix<T, TILE_ROWS>(&state.weights[r * CHUNK], values, &state.acc[r * width], width);
        for (; r < rows; ++r) mix<T, 1>(&state.weights[r * CHUNK], values, &state.acc[r * width], width);
    }
    for (int64_t r = 0; r < rows; ++r) {
        T* out = call.out + ((first + r / group) * call.n_heads + head * group + r % group) * width;
        for (int64_t d = 0; d < width; d += LANES) store(out + d, load(&state.acc[r * width + d]) / state.total[r]);
    }
}

template <typename T>
void prefill_attention(const Word* words, const Team& team) {
    static Scratch<T> scratch;
    static thread_local State<T> state;
    const Call<T>& call = *reinterpret_cast<const Call<T>*>(words);
    int64_t n_chunks = 0, cost = 0, begin, end;
    for (int64_t row = 0; row < call.n_rows; ++row) {
        n_chunks += call.n_chunks(row) * call.n_kv_heads;
        cost += (call.starts[row + 1] - call.starts[row]) * call.contexts[row] * call.n_kv_heads;
    }
    T* panels = scratch.get(team, n_chunks * call.chunk_size());
    team.share(n_chunks, begin, end);
    int64_t index = 0;
    for (int64_t row = 0; row < call.n_rows; ++row)
        for (int64_t head = 0; head < call.n_kv_heads; ++head)
            for (int64_t chunk = 0; chunk < call.n_chunks(row); ++chunk, ++index)
                if (begin <= index && index < end) {
                    T* keys = panels + index * call.chunk_size();
                    pack_chunk(call, row, head, chunk * CHUNK, keys, keys + CHUNK * call.width);
                }
    team.wait();
    // Units go to the thread in whose share their middle lies, by queries x keys.
    int64_t before = 0;
    for (int64_t row = 0; row < call.n_rows; ++row) {
        const int64_t n = call.starts[row + 1] - call.starts[row], context = call.contexts[row];
        for (int64_t head = 0; head < call.n_kv_heads; ++head, panels += call.n_chunks(row) * call.chunk_size())
            for (int64_t query = 0; query < n; query += QUERIES) {
                const int64_t some = std::min(QUERIES, n - query), size = some * context;
                if (cost && (2 * before + size) * team.n_threads / (2 * cost) == team.thread)
                    attend_unit(call, row, head, query, some, panels, state);
                before += size;
            }
    }
}

}  // namespace
}  // namespace lorikeet

using namespace lorikeet;

LORIKEET_EXPORT void prefill_attention_bf16(const Word* a, const Team& team) { prefill_attention<bf16>(a, team); }
LORIKEET_EXPORT void prefill_attention_f32(const Word* a, const Team& team) { prefill_attention<float>(a, team); }
