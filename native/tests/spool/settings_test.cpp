// Settings survive the spool; hashes have their documented form.
#include "dftrace/spool/settings.hpp"

#include <set>
#include <stdexcept>
#include <string>

#include "check.hpp"
#include "dftrace/text/hash.hpp"

using dftrace::Compression;
using dftrace::TraceSettings;

namespace {

TraceSettings unusual() {
    TraceSettings s;
    s.prefix = "/data/räder & co/trace";
    s.host = "node-7";
    s.host_hash = dftrace::hash_hex(s.host);
    s.run = "00112233445566778899aabbccddeeff";
    s.shown_pid = 4242;
    s.process_name_json = R"("rank 3 · node-7")";
    s.header_json = R"(,"rank":3,"cmdline":["a\u005c","b"])";
    s.cwd_json = R"("/data")";
    s.command_json = R"("python train.py")";
    s.time_base_us = 1'728'000'000'000'000;
    s.compression = Compression::zstd;
    s.compression_level = -3;
    s.epoch_us = true;
    s.ids = false;
    s.user_args = false;
    s.block_bytes = 12345;
    return s;
}

}  // namespace

TEST("everything that shapes the lines survives encoding") {
    for (const bool flag : {false, true}) {
        TraceSettings s = unusual();
        s.epoch_us = flag;
        s.ids = !flag;
        s.user_args = flag;
        const TraceSettings back = TraceSettings::decode(s.encode());
        CHECK_EQ(back.prefix, s.prefix);
        CHECK_EQ(back.compression_level, s.compression_level);
        CHECK(back.epoch_us == flag && back.ids != flag && back.user_args == flag);
        CHECK_EQ(back.encode(), s.encode());
    }
    CHECK_EQ(TraceSettings::decode(TraceSettings().encode()).encode(), TraceSettings().encode());
}

TEST("the table of settings has every key once, and decoding what an older version left is no fault") {
    std::set<std::string> keys, spool_keys;
    for (const dftrace::SettingField& field : dftrace::setting_fields) {
        CHECK(keys.insert(field.key).second);
        CHECK(spool_keys.insert(field.spool_key).second);
    }
    const std::string encoded = unusual().encode();
    const std::string mode = std::string("file_mode\0", 10) + "384" + '\0';
    const std::size_t at = encoded.find(mode);
    REQUIRE(at != encoded.npos);
    CHECK_EQ(TraceSettings::decode(std::string(encoded).erase(at, mode.size())).file_mode, 0600);
    for (const dftrace::SettingField& field : dftrace::setting_fields) {
        if (field.kept != dftrace::SettingKept::in_spool) continue;
        std::string lacks = encoded;
        const std::size_t key = ('\0' + encoded).find('\0' + std::string(field.spool_key) + '\0');
        lacks[key] = '!';
        CHECK_THROWS(std::invalid_argument, TraceSettings::decode(lacks));
    }
}

TEST("settings that are cut short are refused, wherever the cut is") {
    const std::string whole = unusual().encode();
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
        if (!check::throws<std::invalid_argument>([&] { TraceSettings::decode(whole.substr(0, bytes)); }))
            CHECK_EQ(bytes, whole.size());
}

TEST("a newer writer's further keys are passed over") {
    std::string encoded = unusual().encode();
    encoded.append(std::string("later\0value\0", 12));
    CHECK_EQ(TraceSettings::decode(encoded).prefix, unusual().prefix);
}

TEST("hashes are FNV-1a of 64 bits") {
    // Vectors of draft-eastlake-fnv.
    CHECK_EQ(dftrace::hash_hex(""), "cbf29ce484222325");
    CHECK_EQ(dftrace::hash_hex("a"), "af63dc4c8601ec8c");
    CHECK_EQ(dftrace::hash_hex("foobar"), "85944171f73967e8");
    CHECK_EQ(dftrace::hash_hex("\xFF").size(), 16);
}
