// Overlapping intervals are spread over lanes on which any two nest or are apart.
#include "dftrace/writing/tracks.hpp"

#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"

using dftrace::Lanes;

namespace {

struct Placed {
    std::uint64_t start, end;
    std::size_t lane;
};

bool apart(const Placed& a, const Placed& b) { return a.end <= b.start || b.end <= a.start; }

bool nest_or_apart(const Placed& a, const Placed& b) {
    const bool a_in_b = b.start <= a.start && a.end <= b.end;
    const bool b_in_a = a.start <= b.start && b.end <= a.end;
    return apart(a, b) || a_in_b || b_in_a;
}

template <class May>
bool lanes_are_sound(const std::vector<Placed>& all, const May& may_share) {
    for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t k = 0; k < i; ++k)
            if (all[i].lane == all[k].lane && !may_share(all[i], all[k])) return false;
    return true;
}

}  // namespace

TEST("random intervals in any order") {
    for (unsigned seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        const std::uint64_t span = 20 + random() % 3000, longest = 1 + random() % 200;
        const bool nest = seed % 2;
        Lanes lanes(nest);
        std::vector<Placed> all;
        for (int i = 0; i < 400; ++i) {
            const std::uint64_t start = random() % span, end = start + random() % longest;
            all.push_back({start, end, lanes.place(start, end)});
        }
        CHECK(lanes_are_sound(all, nest ? nest_or_apart : apart));
    }
}

TEST("intervals that follow each other share one lane, also when they touch") {
    for (const bool nest : {false, true}) {
        Lanes lanes(nest);
        for (std::uint64_t i = 0; i < 100; ++i) CHECK_EQ(lanes.place(i * 10, i * 10 + 10), 0);
        CHECK_EQ(lanes.size(), 1);
    }
}

TEST("intervals that nest share one lane, inner ones first") {
    Lanes lanes(true);
    CHECK_EQ(lanes.place(40, 50), 0);
    CHECK_EQ(lanes.place(60, 70), 0);
    CHECK_EQ(lanes.place(30, 80), 0);
    CHECK_EQ(lanes.place(30, 90), 0);
    CHECK_EQ(lanes.place(0, 100), 0);
    CHECK_EQ(lanes.size(), 1);
}

TEST("where nesting is not meant, an interval around another gets a lane of its own") {
    Lanes lanes(false);
    CHECK_EQ(lanes.place(40, 50), 0);
    CHECK_EQ(lanes.place(30, 80), 1);
    CHECK_EQ(lanes.place(42, 44), 2);
    CHECK_EQ(lanes.place(50, 60), 0);
    CHECK_EQ(lanes.size(), 3);
}

TEST("two trains of intervals that overlap need two lanes") {
    Lanes lanes(true);
    for (std::uint64_t i = 0; i < 1000; ++i) lanes.place(i * 10, i * 10 + 15);
    CHECK_EQ(lanes.size(), 2);
}

TEST("as many lanes as intervals that overlap at once") {
    Lanes lanes(true);
    for (std::uint64_t i = 0; i < 7; ++i) CHECK_EQ(lanes.place(i, 100 + i), i);
    CHECK_EQ(lanes.size(), 7);
    CHECK_EQ(lanes.place(200, 201), 0);
}

TEST("a lane that has forgotten its beginning takes nothing there any more") {
    Lanes lanes(true);
    std::vector<Placed> all;
    const auto place = [&](std::uint64_t start, std::uint64_t end) {
        all.push_back({start, end, lanes.place(start, end)});
    };
    for (std::uint64_t i = 0; i < 5000; ++i) place(i * 10, i * 10 + 8);
    CHECK_EQ(lanes.size(), 1);
    place(3, 12);       // overlaps intervals that were forgotten
    place(8, 10);       // would fit, but nobody knows any more
    place(0, 100'000);  // around everything
    place(49'000, 49'003);
    CHECK(lanes_are_sound(all, nest_or_apart));
}
