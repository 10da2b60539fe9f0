// The header in C++: handles in owners that release them, and errors as exceptions.
//
// c++ sum.cc $(pkg-config --cflags --libs oikaze) -o sum && oikaze run -n 2 -- ./sum
#include <oikaze.h>

#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <vector>

static void check(oik_status status) {
    if (status != OIK_OK) throw std::runtime_error(oik_error());
}

// Owns a handle, and releases it at its end.
template <typename Object, oik_status (*release)(Object *)>
class Owner {
  public:
    Owner() = default;
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
    ~Owner() {
        if (object != nullptr) release(object);
    }
    operator Object *() const { return object; }
    Object **operator&() { return &object; }

  private:
    Object *object = nullptr;
};

using Job = Owner<oik_job, oik_leave>;
using Team = Owner<oik_team, oik_team_release>;

static void combine(void *into, const void *next, size_t count, void *) {
    auto *sums = static_cast<long *>(into);
    auto *others = static_cast<const long *>(next);
    for (size_t n = 0; n < count; n++) sums[n] = 10 * sums[n] + others[n];
}

int main() {
    try {
        Job job;
        Team all;
        uint32_t rank;
        check(oik_join(&job));
        check(oik_rank(job, &rank));
        check(oik_world(job, &all));
        std::vector<double> values(1000);
        std::iota(values.begin(), values.end(), rank);
        check(oik_all_reduce(all, OIK_F64, OIK_SUM, values.data(), values.size(), nullptr));
        // An operator of the program, in the order of ranks.
        long digits = rank + 1;
        check(oik_all_reduce_by(all, sizeof digits, combine, nullptr, &digits, 1));
        if (rank == 0) std::printf("last %.1f, digits %ld\n", values.back(), digits);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "sum: %s\n", error.what());
        return 1;
    }
}
