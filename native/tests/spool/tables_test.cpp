// Names and argument snapshots are read from blob units, kept while needed, and then forgotten.
#include "dftrace/spool/tables.hpp"

#include <cstring>
#include <string>

#include "check.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

// Blob units in a spool, filled as a session fills them.
struct Blobs {
    ScratchDir dir;
    Spool spool{dir.file("a.spool"), 64 * unit_bytes};

    static bool put(UnitHeader* unit, BlobKind kind, std::uint32_t id, const std::string& text = "") {
        const std::uint32_t at = unit->committed.load();
        const auto bytes = static_cast<std::uint32_t>((sizeof(BlobHeader) + text.size() + 7) & ~7u);
        if (at + bytes > unit->capacity) return false;
        auto* blob = reinterpret_cast<BlobHeader*>(blobs_of(unit) + at);
        *blob = {id, static_cast<std::uint32_t>(text.size()), kind, 0};
        std::memcpy(blob + 1, text.data(), text.size());
        unit->committed.store(at + bytes);
        return true;
    }
};

}  // namespace

TEST("names and snapshots are known once their unit was read") {
    Blobs blobs;
    UnitHeader* names = blobs.spool.acquire(UnitKind::names, 0);
    UnitHeader* args = blobs.spool.acquire(UnitKind::arguments, 0);
    BlobTables tables;
    Blobs::put(names, BlobKind::name, 1, R"("name":"a","cat":"c")");
    Blobs::put(args, BlobKind::arguments, 5, ",\"epoch\":1");
    CHECK_EQ(tables.name(1), "");
    tables.read(names);
    tables.read(args);
    CHECK_EQ(tables.name(1), R"("name":"a","cat":"c")");
    CHECK_EQ(tables.arguments(5), ",\"epoch\":1");
    Blobs::put(names, BlobKind::name, 2, R"("name":"b","cat":"c")");
    tables.read(names);
    CHECK_EQ(tables.name(2), R"("name":"b","cat":"c")");
    for (const std::uint32_t unknown : {0u, 3u, 77u, 4'000'000'000u}) {
        CHECK_EQ(tables.name(unknown), "");
        CHECK_EQ(tables.arguments(unknown), "");
    }
}

TEST("entries of every length up to a whole unit are told apart") {
    Blobs blobs;
    BlobTables tables;
    std::uint32_t id = 1;
    UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
    for (std::size_t length = 0; length < 300; ++length, ++id) {
        const std::string text(length, static_cast<char>('a' + length % 26));
        if (!Blobs::put(unit, BlobKind::arguments, id, text)) {
            tables.read(unit);
            unit = blobs.spool.acquire(UnitKind::arguments, 0);
            REQUIRE(Blobs::put(unit, BlobKind::arguments, id, text));
        }
    }
    tables.read(unit);
    for (std::uint32_t i = 1; i < id; ++i)
        CHECK_EQ(tables.arguments(i), std::string(i - 1, static_cast<char>('a' + (i - 1) % 26)));
    UnitHeader* full = blobs.spool.acquire(UnitKind::arguments, 0);
    const std::string all(full->capacity - sizeof(BlobHeader), 'z');
    REQUIRE(Blobs::put(full, BlobKind::arguments, 9999, all));
    tables.read(full);
    CHECK_EQ(tables.arguments(9999), all);
}

TEST("releases are told once, in order") {
    Blobs blobs;
    UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
    BlobTables tables;
    Blobs::put(unit, BlobKind::arguments, 1, ",\"a\":1");
    Blobs::put(unit, BlobKind::release, 1);
    Blobs::put(unit, BlobKind::arguments, 2, ",\"a\":2");
    Blobs::put(unit, BlobKind::release, 2);
    tables.read(unit);
    CHECK(tables.take_releases() == (std::vector<std::uint32_t>{1, 2}));
    CHECK(tables.take_releases().empty());
    tables.read(unit);
    CHECK(tables.take_releases().empty());
    CHECK_EQ(tables.arguments(1), ",\"a\":1");  // until it is forgotten
}

TEST("a unit is spent when all of its snapshots are forgotten and nothing is left to read") {
    Blobs blobs;
    UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
    BlobTables tables;
    CHECK(!tables.spent(unit));
    Blobs::put(unit, BlobKind::arguments, 1, ",\"a\":1");
    Blobs::put(unit, BlobKind::arguments, 2, ",\"a\":2");
    tables.read(unit);
    CHECK(tables.forget(1) == nullptr);
    CHECK(tables.forget(1) == nullptr);  // again: nothing happens
    CHECK(!tables.spent(unit));
    CHECK(tables.forget(2) == unit);
    CHECK(tables.spent(unit));
    Blobs::put(unit, BlobKind::arguments, 3, ",\"a\":3");
    CHECK(!tables.spent(unit));
    tables.read(unit);
    CHECK(!tables.spent(unit));
    CHECK_EQ(tables.arguments(1), "");
    CHECK_EQ(tables.arguments(3), ",\"a\":3");
    CHECK(tables.forget(4'000'000'000u) == nullptr);
}

TEST("a unit that comes back is read anew") {
    Blobs blobs;
    UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
    BlobTables tables;
    Blobs::put(unit, BlobKind::arguments, 1, ",\"a\":1");
    tables.read(unit);
    tables.forget(1);
    tables.drop_unit(unit);
    blobs.spool.release(unit);
    UnitHeader* again = blobs.spool.acquire(UnitKind::arguments, 0);
    REQUIRE(again == unit);
    Blobs::put(again, BlobKind::arguments, 2, ",\"b\":2");
    tables.read(again);
    CHECK_EQ(tables.arguments(2), ",\"b\":2");
    CHECK_EQ(tables.arguments(1), "");
}

TEST("the table of a long run stays small: pages go and can come again") {
    Blobs blobs;
    BlobTables tables;
    UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
    for (std::uint32_t id = 1; id < 60'000; ++id) {
        const std::string text = ",\"step\":" + std::to_string(id);
        if (!Blobs::put(unit, BlobKind::arguments, id, text)) {
            tables.read(unit);
            for (std::uint32_t old = 1; old < id; ++old) tables.forget(old);
            CHECK(tables.spent(unit));
            tables.drop_unit(unit);
            blobs.spool.release(unit);
            unit = blobs.spool.acquire(UnitKind::arguments, 0);
            Blobs::put(unit, BlobKind::arguments, id, text);
        }
    }
    tables.read(unit);
    CHECK_EQ(tables.arguments(59'999), ",\"step\":59999");
    CHECK_EQ(tables.arguments(1), "");
    // An id of a page that went.
    UnitHeader* late = blobs.spool.acquire(UnitKind::arguments, 0);
    Blobs::put(late, BlobKind::arguments, 3, ",\"late\":true");
    tables.read(late);
    CHECK_EQ(tables.arguments(3), ",\"late\":true");
    CHECK_EQ(blobs.spool.header().units.load(), 3);
}

TEST("a torn entry ends its unit and spoils nothing before it") {
    for (const std::uint32_t bytes : {1000u, 0x7FFF'FFFFu, 0xFFFF'FFF0u, 0xFFFF'FFFFu}) {
        Blobs blobs;
        UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
        BlobTables tables;
        Blobs::put(unit, BlobKind::arguments, 1, ",\"a\":1");
        const std::uint32_t torn = unit->committed.load();
        Blobs::put(unit, BlobKind::arguments, 2, ",\"a\":2");
        Blobs::put(unit, BlobKind::arguments, 3, ",\"a\":3");
        reinterpret_cast<BlobHeader*>(blobs_of(unit) + torn)->bytes = bytes;
        tables.read(unit);
        CHECK_EQ(tables.arguments(1), ",\"a\":1");
        CHECK_EQ(tables.arguments(2), "");
        CHECK_EQ(tables.arguments(3), "");
    }
}

TEST("a count beyond the unit, and entries of kinds from elsewhere, are survived") {
    Blobs blobs;
    UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
    BlobTables tables(true);
    Blobs::put(unit, static_cast<BlobKind>(77), 1, "what is this");
    Blobs::put(unit, BlobKind::name, 0xFFFF'FFFF, R"("name":"too many","cat":"names")");
    Blobs::put(unit, BlobKind::arguments, 1, ",\"a\":1");
    CHECK_EQ(tables.refused(), 0);
    std::memset(blobs_of(unit) + unit->committed.load(), 0, 64);
    unit->committed.store(0xFFFF'FFFF);
    tables.read(unit);
    CHECK_EQ(tables.arguments(1), ",\"a\":1");
    CHECK_EQ(tables.name(0xFFFF'FFFF), "");
    CHECK(tables.refused() >= 2);
}

TEST("of what another process wrote, only texts that are JSON and numbers in a row are believed") {
    Blobs blobs;
    UnitHeader* names = blobs.spool.acquire(UnitKind::names, 0);
    UnitHeader* unit = blobs.spool.acquire(UnitKind::arguments, 0);
    BlobTables tables(true);
    Blobs::put(names, BlobKind::name, 1, R"("name":"a","cat":"b")");
    Blobs::put(names, BlobKind::name, 2, R"("ValueError")");
    Blobs::put(names, BlobKind::name, 3, R"("name":"a","cat":"b"},{)");
    Blobs::put(names, BlobKind::name, 4, "\"\xFF\"");
    Blobs::put(unit, BlobKind::arguments, 8000, ",\"a\":1");
    Blobs::put(unit, BlobKind::arguments, 8001, ",\"a\":[1,{\"b\":null}]");
    Blobs::put(unit, BlobKind::arguments, 8002, "\"a\":1");
    Blobs::put(unit, BlobKind::arguments, 8002, ",\"a\":1");
    Blobs::put(unit, BlobKind::arguments, 4'000'000'000, ",\"a\":1");
    tables.read(names);
    CHECK_EQ(tables.refused(), 2);
    tables.read(unit);
    CHECK_EQ(tables.refused(), 4);
    // Each is what it was stored as, and nothing else.
    CHECK(!tables.name(1).empty() && tables.exception_type(1).empty());
    CHECK(tables.name(2).empty());
    CHECK_EQ(tables.exception_type(2), R"("ValueError")");
    for (const std::uint32_t refused : {3u, 4u})
        CHECK(tables.name(refused).empty() && tables.exception_type(refused).empty());
    for (const std::uint32_t known : {8000u, 8001u, 8002u}) CHECK(!tables.arguments(known).empty());
    CHECK(tables.arguments(4'000'000'000).empty());
}
