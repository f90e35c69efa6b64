// Rows of a table by their numbers.
#include <cstring>

#include "team.h"
#include "vec.h"

using namespace lorikeet;

// out, table, bytes from row to row of the table, rows: int64 [n], n, bytes of a row
LORIKEET_EXPORT void gather_rows(const Word* a, const Team& team) {
    char* out = static_cast<char*>(a[0].p);
    const char* table = static_cast<const char*>(a[1].p);
    const int64_t* rows = static_cast<const int64_t*>(a[3].p);
    int64_t begin, end;
    team.share(a[4].n, begin, end);
    for (int64_t i = begin; i < end; ++i) std::memcpy(out + i * a[5].n, table + rows[i] * a[2].n, a[5].n);
}
