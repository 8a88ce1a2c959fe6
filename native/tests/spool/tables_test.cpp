// Of names and argument snapshots that are torn, or from elsewhere, none is believed that is none.
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

TEST("what every part tells is read of a spool that another process wrote, if it is a line, or a name") {
    Blobs blobs;
    UnitHeader* unit = blobs.spool.acquire(UnitKind::names, 0);
    BlobTables tables(true);
    Blobs::put(unit, BlobKind::fact, 7, "{\"ph\":\"M\"}\n");
    for (const char* text : {"{\"ph\":\"M\"}", "{}\n{}\n", "[]\n", "{\"ph\"\n"})
        Blobs::put(unit, BlobKind::fact, 8, text);
    Blobs::put(unit, BlobKind::lane, 9, "\"lane\"");
    Blobs::put(unit, BlobKind::lane, 10, "\"lane\"}");
    tables.read(unit);
    CHECK_EQ(tables.refused(), 5);
    CHECK_EQ(tables.told_by_parts().size(), 2);
    CHECK_EQ(tables.told_by_parts()[0].text, "{\"ph\":\"M\"}\n");
    CHECK_EQ(tables.told_by_parts()[1].number, 9);
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
