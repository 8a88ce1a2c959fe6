// Names get small numbers, once for the whole process.
#include "dftrace/text/names.hpp"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"

using namespace dftrace;

TEST("pairs that are alike, long or empty have numbers of their own, however often they come back") {
    const std::string longest(300, 'x');
    const std::pair<std::string, std::string> pairs[] = {{"ab", "c"},    {"a", "bc"},    {"", "abc"},
                                                         {"abc", ""},    {"", ""},       {"c", "ab"},
                                                         {longest, "a"}, {"a", longest}, {longest, longest}};
    std::vector<std::uint32_t> numbers;
    for (const auto& [category, name] : pairs) numbers.push_back(intern_name(category, name));
    for (int turn = 0; turn < 3; ++turn)
        for (std::size_t i = 0; i < std::size(pairs); ++i) {
            const auto& [category, name] = pairs[i];
            CHECK_EQ(intern_name(category, name), numbers[i]);
            CHECK_EQ(interned_json(numbers[i]), "\"name\":\"" + name + "\",\"cat\":\"" + category + "\"");
        }
    for (std::size_t i = 0; i < std::size(pairs); ++i)
        for (std::size_t j = 0; j < i; ++j) CHECK(numbers[i] != numbers[j]);
}

TEST(
    "exceptions have numbers of their own, hostile names are escaped, and what was never given out is "
    "nothing") {
    const std::uint32_t error = intern_exception_type("ValueError");
    CHECK_EQ(interned_json(error), R"("ValueError")");
    CHECK(error != 0 && error < interned_names());
    CHECK_EQ(interned_json(intern_name("a\"", "b\\")), R"("name":"b\u005c","cat":"a\"")");
    CHECK_EQ(interned_json(0), "");
    CHECK_EQ(interned_json(interned_names() + 1000), "");
}

TEST("threads that intern the same names agree on the numbers") {
    constexpr int names = 500;
    std::vector<std::vector<std::uint32_t>> seen(8);
    std::vector<std::thread> threads;
    for (auto& mine : seen)
        threads.emplace_back([&mine] {
            for (int i = 0; i < names; ++i) mine.push_back(intern_name("threads", std::to_string(i)));
        });
    for (auto& thread : threads) thread.join();
    for (const auto& mine : seen) CHECK(mine == seen[0]);
    for (int i = 0; i < names; ++i)
        CHECK_EQ(interned_json(seen[0][static_cast<std::size_t>(i)]),
                 "\"name\":\"" + std::to_string(i) + "\",\"cat\":\"threads\"");
}
