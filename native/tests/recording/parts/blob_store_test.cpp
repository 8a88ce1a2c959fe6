// What a session stores for its records to name, without the session.
#include "dftrace/recording/blob_store.hpp"

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dftrace/text/names.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

struct Store {
    explicit Store(std::size_t units = 64) : limit(units) {}
    ScratchDir dir;
    std::size_t limit;
    Spool spool{dir.file("a.spool"), limit* unit_bytes};
    UnitSupply supply{spool};
    BlobStore blobs{supply};
    BlobTables tables;
    // 0 where there is no room.
    std::uint32_t put(std::string_view members, std::uint32_t instead_of = 0) {
        return blobs.put_arguments(members, instead_of).value_or(0);
    }
};

std::string members(std::uint64_t n, std::size_t pad = 0) {
    return ",\"n\":" + std::to_string(n) + ",\"pad\":\"" + std::string(pad, 'x') + "\"";
}

}  // namespace

TEST("names up to a number, and what was put, are read back") {
    Store store;
    const std::uint32_t name = intern_name("store", "forward");
    const std::uint32_t type = intern_exception_type("StoreError");
    store.blobs.define_names(type);
    const std::uint32_t first = store.put(members(1));
    const std::uint32_t second = store.put(members(2));
    store.blobs.read_into(store.tables);
    CHECK_EQ(store.tables.name(name), R"("name":"forward","cat":"store")");
    CHECK_EQ(store.tables.exception_type(type), R"("StoreError")");
    CHECK_EQ(second, first + 1);
    CHECK_EQ(store.tables.arguments(first), members(1));
    CHECK_EQ(store.tables.arguments(second), members(2));
    std::uint32_t nothing = 0;
    CHECK(store.blobs.put_arguments("", nothing) == 0u);
}

TEST("without room nothing is stored, and a name is tried again") {
    Store store;
    std::vector<UnitHeader*> taken;
    while (UnitHeader* unit = store.supply.take(UnitKind::ring, 1)) taken.push_back(unit);
    store.supply.give_back(taken.back());
    taken.pop_back();
    const std::uint32_t args = store.put(members(1));
    const std::uint32_t name = intern_name("store", "late");
    store.blobs.define_names(name);
    CHECK(args != 0);
    std::uint32_t nothing = 0;
    CHECK(!store.blobs.put_arguments(members(2, unit_bytes), nothing));
    store.blobs.read_into(store.tables);
    CHECK_EQ(store.tables.name(name), "");
    for (UnitHeader* unit : taken) store.supply.give_back(unit);
    store.blobs.read_into(store.tables);
    CHECK(!store.tables.name(name).empty());
}

TEST("units of arguments come back once all of them were released and forgotten") {
    Store store(8);
    const std::uint64_t before = store.supply.times_given_back();
    constexpr std::uint64_t many = 3000;  // twenty to a unit: far more than there is room for
    std::uint32_t held = 0;
    for (std::uint64_t n = 0; n < many; ++n) {
        const std::uint32_t args = store.put(members(n, 3000));
        REQUIRE(args != 0);
        store.blobs.release_arguments(held);
        held = args;
        store.blobs.read_into(store.tables);
        for (const std::uint32_t id : store.tables.take_releases()) store.tables.forget(id);
        store.blobs.give_back_spent(store.tables);
    }
    CHECK_EQ(store.tables.arguments(held), members(many - 1, 3000));
    CHECK(store.supply.times_given_back() > before + many / 30);
    CHECK_EQ(store.spool.header().args_sanitised.load(), 0);
}

TEST("what is stored instead of another releases that, also where there is nothing to store or no room") {
    Store store;
    const std::uint32_t first = store.put(members(1));
    const std::uint32_t second = store.put(members(2), first);
    CHECK_EQ(store.put("", second), 0);
    const std::uint32_t third = store.put(members(3));
    std::uint32_t released = third;
    CHECK(!store.blobs.put_arguments(members(4, 64 * unit_bytes), released));
    CHECK_EQ(released, 0u);
    store.blobs.read_into(store.tables);
    CHECK_EQ(store.tables.arguments(second), members(2));
    CHECK((store.tables.take_releases() == std::vector<std::uint32_t>{first, second, third}));
}

TEST("threads that store at once get numbers of their own, and find there what they stored") {
    Store store;
    constexpr std::uint64_t each = 2000;
    std::vector<std::vector<std::uint32_t>> ids(4);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < ids.size(); ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t n = 0; n < each; ++n) {
                ids[t].push_back(store.put(members(t * each + n)));
                if (n % 100 == 0) store.blobs.define_names(intern_name("store", std::to_string(n)));
            }
        });
    for (std::uint64_t n = 0; n < 50; ++n) store.blobs.read_into(store.tables);
    for (std::thread& thread : threads) thread.join();
    store.blobs.read_into(store.tables);
    for (std::uint64_t t = 0; t < ids.size(); ++t)
        for (std::uint64_t n = 0; n < each; ++n)
            if (store.tables.arguments(ids[t][n]) != members(t * each + n)) CHECK_EQ(t, n);
}
