// Encoding of the settings, hashes, and JSON strings.
#include "dftrace/spool/settings.hpp"

#include <unistd.h>

#include <cctype>
#include <map>
#include <stdexcept>

namespace dftrace {

const char* name_of(Compression compression) noexcept {
    switch (compression) {
        case Compression::none: return "none";
        case Compression::gzip: return "gzip";
        case Compression::zstd: return "zstd";
    }
    return "none";
}

const char* suffix_of(Compression compression) noexcept {
    switch (compression) {
        case Compression::none: return ".pfw";
        case Compression::gzip: return ".pfw.gz";
        case Compression::zstd: return ".pfw.zst";
    }
    return ".pfw";
}

Compression compression_from(std::string_view name) {
    for (const auto c : {Compression::none, Compression::gzip, Compression::zstd})
        if (name == name_of(c)) return c;
    throw std::invalid_argument("unknown compression: " + std::string(name));
}

std::string TraceSettings::encode() const {
    std::string out;
    const auto put = [&out](std::string_view key, std::string_view value) {
        out.append(key).push_back('\0');
        out.append(value).push_back('\0');
    };
    put("prefix", prefix);
    put("host", host);
    put("host_hash", host_hash);
    put("run", run);
    put("shown_pid", std::to_string(shown_pid));
    put("process_name", process_name_json);
    put("header", header_json);
    put("cwd", cwd_json);
    put("command", command_json);
    put("time_base_us", std::to_string(time_base_us));
    put("compression", name_of(compression));
    put("compression_level", std::to_string(compression_level));
    put("epoch_us", epoch_us ? "1" : "0");
    put("ids", ids ? "1" : "0");
    put("user_args", user_args ? "1" : "0");
    put("block_bytes", std::to_string(block_bytes));
    put("file_mode", std::to_string(file_mode));
    put("max_file_bytes", std::to_string(max_file_bytes));
    put("max_files", std::to_string(max_files));
    put("flight_recorder", flight_recorder ? "1" : "0");
    put("flight_ns", std::to_string(flight_ns));
    return out;
}

TraceSettings TraceSettings::decode(std::string_view encoded) {
    std::map<std::string, std::string, std::less<>> values;
    const auto take = [&encoded] {
        const auto end = encoded.find('\0');
        if (end == std::string_view::npos) throw std::invalid_argument("settings are cut short");
        const std::string_view text = encoded.substr(0, end);
        encoded.remove_prefix(end + 1);
        return std::string(text);
    };
    while (!encoded.empty()) {
        std::string key = take();
        values[std::move(key)] = take();
    }
    const auto text = [&values](std::string_view key) {
        const auto it = values.find(key);
        if (it == values.end()) throw std::invalid_argument("settings lack " + std::string(key));
        return it->second;
    };
    TraceSettings s;
    s.prefix = text("prefix");
    s.host = text("host");
    s.host_hash = text("host_hash");
    s.run = text("run");
    s.shown_pid = static_cast<std::uint32_t>(std::stoul(text("shown_pid")));
    s.process_name_json = text("process_name");
    s.header_json = text("header");
    s.cwd_json = text("cwd");
    s.command_json = text("command");
    s.time_base_us = std::stoull(text("time_base_us"));
    s.compression = compression_from(text("compression"));
    s.compression_level = std::stoi(text("compression_level"));
    s.epoch_us = text("epoch_us") == "1";
    s.ids = text("ids") == "1";
    s.user_args = text("user_args") == "1";
    s.block_bytes = std::stoull(text("block_bytes"));
    // What a spool says is held to what the setting accepts, and one of an older version says nothing.
    if (values.contains("file_mode"))
        s.file_mode = (static_cast<std::uint32_t>(std::stoul(text("file_mode"))) & 0666u) | 0600u;
    s.max_file_bytes = std::stoull(text("max_file_bytes"));
    s.max_files = static_cast<std::uint32_t>(std::stoul(text("max_files")));
    s.flight_recorder = text("flight_recorder") == "1";
    s.flight_ns = std::stoull(text("flight_ns"));
    return s;
}

std::string host_name() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    std::string host = name;
    for (char& c : host)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '_';
    return host.empty() ? "localhost" : host;
}

std::string hash_hex(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::string out(16, '0');
    for (int i = 15; i >= 0; --i, hash >>= 4)
        out[static_cast<std::size_t>(i)] = "0123456789abcdef"[hash & 15];
    return out;
}

std::size_t utf8_length(std::string_view s, std::size_t at) noexcept {
    const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
    const auto continues = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
        return byte(i) >= low && byte(i) <= high;
    };
    const unsigned b = byte(at);
    if (b < 0x80) return 1;
    if (b >= 0xC2 && b <= 0xDF) return continues(at + 1) ? 2 : 0;
    if (b >= 0xE0 && b <= 0xEF) {
        const unsigned low = b == 0xE0 ? 0xA0 : 0x80, high = b == 0xED ? 0x9F : 0xBF;
        return continues(at + 1, low, high) && continues(at + 2) ? 3 : 0;
    }
    if (b >= 0xF0 && b <= 0xF4) {
        const unsigned low = b == 0xF0 ? 0x90 : 0x80, high = b == 0xF4 ? 0x8F : 0xBF;
        return continues(at + 1, low, high) && continues(at + 2) && continues(at + 3) ? 4 : 0;
    }
    return 0;
}

void append_json_string(std::string& out, std::string_view text) {
    static constexpr char hex[] = "0123456789abcdef";
    out.push_back('"');
    std::size_t plain = 0;  // start of the run that needs no change
    std::size_t i = 0;
    while (i < text.size()) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') [[likely]] {
            ++i;
            continue;
        }
        if (c >= 0x80) {
            if (const std::size_t length = utf8_length(text, i)) {
                i += length;
                continue;
            }
        }
        out.append(text, plain, i - plain);
        if (c == '"')
            out.append("\\\"");
        else if (c == '\\')
            // Perfetto takes `\\"` for an escaped quote and swallows the rest of the file.
            out.append(i + 1 == text.size() ? "\\u005c" : "\\\\");
        else if (c == '\n')
            out.append("\\n");
        else if (c == '\t')
            out.append("\\t");
        else if (c == '\r')
            out.append("\\r");
        else if (c < 0x20) {
            out.append("\\u00");
            out.push_back(hex[c >> 4]);
            out.push_back(hex[c & 15]);
        } else
            out.append("\xEF\xBF\xBD");
        plain = ++i;
    }
    out.append(text, plain, text.size() - plain);
    out.push_back('"');
}

}  // namespace dftrace
