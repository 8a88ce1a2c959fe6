// Encoding of the settings.
#include "dftrace/spool/settings.hpp"

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

namespace {

bool is_kept(const SettingField& field) noexcept { return field.kept != SettingKept::nowhere; }

std::string text_of(const std::string& value) { return value; }
std::string text_of(bool value) { return value ? "1" : "0"; }
std::string text_of(Compression value) { return name_of(value); }
template <typename Number>
std::string text_of(Number value) {
    return std::to_string(value);
}

void take(std::string& into, const std::string& text) { into = text; }
void take(bool& into, const std::string& text) { into = text == "1"; }
void take(Compression& into, const std::string& text) { into = compression_from(text); }
void take(int& into, const std::string& text) { into = std::stoi(text); }
template <typename Number>
void take(Number& into, const std::string& text) {
    into = static_cast<Number>(std::stoull(text));
}

}  // namespace

std::string TraceSettings::encode() const {
    std::string out;
    for (const SettingField& field : setting_fields) {
        if (!is_kept(field)) continue;
        out.append(field.spool_key).push_back('\0');
        std::visit([&](auto member) { out.append(text_of(this->*member)); }, field.member);
        out.push_back('\0');
    }
    return out;
}

TraceSettings TraceSettings::decode(std::string_view encoded) {
    std::map<std::string, std::string, std::less<>> values;
    const auto next = [&encoded] {
        const auto end = encoded.find('\0');
        if (end == std::string_view::npos) throw std::invalid_argument("settings are cut short");
        const std::string_view text = encoded.substr(0, end);
        encoded.remove_prefix(end + 1);
        return std::string(text);
    };
    while (!encoded.empty()) {
        std::string key = next();
        values[std::move(key)] = next();
    }
    TraceSettings settings;
    for (const SettingField& field : setting_fields) {
        if (!is_kept(field)) continue;
        const auto found = values.find(std::string_view(field.spool_key));
        if (found != values.end())
            std::visit([&](auto member) { take(settings.*member, found->second); }, field.member);
        else if (field.kept == SettingKept::in_spool)
            throw std::invalid_argument(std::string("settings lack ") + field.spool_key);
    }
    // What a spool says is held to what the setting accepts.
    settings.file_mode = (settings.file_mode & 0666u) | 0600u;
    return settings;
}

std::uint32_t shown_pid(const TraceSettings& settings, std::uint32_t pid) {
    return settings.shown_pid ? settings.shown_pid : pid;
}

std::string file_stem(const TraceSettings& settings, std::uint32_t pid) {
    return settings.prefix + "-" + settings.host + "-" + std::to_string(shown_pid(settings, pid));
}

}  // namespace dftrace
