// Values that repeat each other near and far, and not at all.
#include "made_lines.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

namespace made {

namespace {

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz", hex_digits = "0123456789abcdef",
                           all_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/";

std::uint64_t between(Random& random, std::uint64_t least, std::uint64_t most) {
    return least + random() % (most - least + 1);
}

// Of a range whose small numbers come as often as its great ones.
std::uint64_t of_any_size(Random& random, double least, double most) {
    const double share = static_cast<double>(random() >> 11) * 0x1p-53;
    return static_cast<std::uint64_t>(least * std::pow(most / least, share));
}

std::string letters_of(Random& random, std::string_view alphabet, std::size_t count) {
    std::string text(count, ' ');
    for (char& letter : text) letter = alphabet[random() % alphabet.size()];
    return text;
}

std::string quoted(std::string text) {
    text.insert(text.begin(), '"');
    text.push_back('"');
    return text;
}

std::string number_of(Random& random, std::uint64_t digits) {
    std::string text(1, static_cast<char>('1' + random() % 9));
    while (text.size() < digits) text += static_cast<char>('0' + random() % 10);
    return text;
}

// Which of so many comes next: in turn, by chance, or for a while the same.
std::function<std::size_t(Random&)> chooser(Random& random, std::size_t count) {
    const std::uint64_t way = random() % 3, stays = between(random, 2, 60);
    return [=, at = std::size_t{0}](Random& chance) mutable {
        if (way == 0) return at = (at + 1) % count;
        if (way == 1 || chance() % stays == 0) at = chance() % count;
        return at;
    };
}

}  // namespace

// File names and the like: the beginning comes back, the end is another one.
Kind::Value Kind::recurring(Random& random) {
    const std::size_t count = of_any_size(random, 5, 500), key = of_any_size(random, 3, 150);
    const std::size_t common = random() % 2 ? of_any_size(random, 1, 60) : 0;
    const std::size_t end = random() % 4 ? of_any_size(random, 1, 24) : 0;
    const std::string_view alphabet = random() % 3 ? letters : random() % 2 ? hex_digits : all_letters;
    const std::string_view ends = random() % 2 ? letters : "0123456789";
    const bool fresh_before = random() % 4 == 0;  // what comes back stands in the middle
    std::vector<std::string> keys(count);
    const std::string front = letters_of(random, alphabet, common);
    for (std::string& each : keys) each = front + letters_of(random, alphabet, key);
    told_ += "recurring(" + std::to_string(count) + "," + std::to_string(key) + "," + std::to_string(end) +
             (fresh_before ? ",middle" : "") + ") ";
    return [=, choose = chooser(random, count)](std::string& text, Random& chance, std::uint64_t) mutable {
        text += '"';
        if (fresh_before) text.append(letters_of(chance, ends, end)).append("/");
        text += keys[choose(chance)];
        if (end) text.append("-").append(letters_of(chance, ends, end));
        text += '"';
    };
}

// Free text of words, some of which are more frequent than others.
Kind::Value Kind::words(Random& random) {
    std::vector<std::string> known(of_any_size(random, 10, 5000));
    for (std::string& word : known) word = letters_of(random, letters, between(random, 2, 12));
    const std::uint64_t most = of_any_size(random, 1, 60);
    told_ += "words(" + std::to_string(known.size()) + "," + std::to_string(most) + ") ";
    return [=](std::string& text, Random& chance, std::uint64_t) {
        text += '"';
        for (std::uint64_t i = between(chance, 1, most); i != 0; --i)
            text += known[of_any_size(chance, 1, static_cast<double>(known.size())) - 1] + " ";
        text += '"';
    };
}

Kind::Value Kind::value(Random& random) {
    const std::uint64_t which = random() % 16;
    const std::uint64_t digits = between(random, 1, 19);
    const auto told = [&](const char* what, std::uint64_t size) {
        told_ += std::string(what) + "(" + std::to_string(size) + ") ";
    };
    switch (which) {
        case 0:
        case 1: {
            const std::uint64_t each = of_any_size(random, 1, 1000);
            told("counter", each);
            return [=](std::string& text, Random&, std::uint64_t id) { text += std::to_string(id / each); };
        }
        case 2:
            told("number", digits);
            return
                [=](std::string& text, Random& chance, std::uint64_t) { text += number_of(chance, digits); };
        case 3: {
            const int precision = static_cast<int>(between(random, 2, 17));
            told("fraction", static_cast<std::uint64_t>(precision));
            return [=](std::string& text, Random& chance, std::uint64_t) {
                std::array<char, 40> shown;
                std::snprintf(shown.data(), shown.size(), "%.*g", precision,
                              std::exp(static_cast<double>(chance() % 1'000'000'007) * 1e-8 - 5));
                text += shown.data();
            };
        }
        case 4: {
            const std::size_t length = std::size_t{8} << random() % 4;
            told("hash", length);
            return [=](std::string& text, Random& chance, std::uint64_t) {
                text += quoted(letters_of(chance, hex_digits, length));
            };
        }
        case 5: return words(random);
        case 6:
        case 7: {
            std::vector<std::string> values(of_any_size(random, 2, 300));
            const bool numbers = which == 7;
            const std::size_t length = numbers ? digits : of_any_size(random, 1, 40);
            for (std::string& each : values)
                each = numbers ? number_of(random, length) : quoted(letters_of(random, letters, length));
            told(numbers ? "numbers that return" : "texts that return", values.size() * 1000 + length);
            return [=, choose = chooser(random, values.size())](std::string& text, Random& chance,
                                                                std::uint64_t) mutable {
                text += values[choose(chance)];
            };
        }
        case 8: {
            const std::uint64_t most = between(random, 2, 30);
            told("shape", most);
            return [=](std::string& text, Random& chance, std::uint64_t) {
                text += "[" + std::to_string(chance() % most * 8) + "," + std::to_string(64 << chance() % 5) +
                        "," + std::to_string(chance() % most) + "]";
            };
        }
        case 9: {
            const std::uint64_t step = of_any_size(random, 1, 1e7);
            told("offset", step);
            return [=, at = std::uint64_t{0}](std::string& text, Random& chance, std::uint64_t) mutable {
                at += chance() % (2 * step);
                text += std::to_string(at);
            };
        }
        case 10: {
            const std::size_t length = of_any_size(random, 10, 400);
            told("bytes", length);
            return [=](std::string& text, Random& chance, std::uint64_t) {
                text += quoted(letters_of(chance, all_letters, length));
            };
        }
        case 11: {
            const std::string folder = letters_of(random, letters, of_any_size(random, 3, 80));
            const std::uint64_t most = of_any_size(random, 10, 1e6);
            told("numbered file", most);
            return [=](std::string& text, Random& chance, std::uint64_t) {
                text += "\"/" + folder + "/part-" + std::to_string(100'000'000 + chance() % most) + ".npz\"";
            };
        }
        case 12: {
            told("sentence", digits);
            return [=](std::string& text, Random& chance, std::uint64_t id) {
                text += "\"step " + std::to_string(id / 3) + " took 0." + number_of(chance, digits) +
                        " s on host" + std::to_string(chance() % 16) + ", loss " + number_of(chance, 5) +
                        "\"";
            };
        }
        default: return recurring(random);
    }
}

Kind::Kind(std::uint64_t seed) {
    Random random(seed);
    names_.resize(of_any_size(random, 1, 300));
    const bool layers = random() % 2;
    const std::string layer = letters_of(random, letters, between(random, 3, 20));
    for (std::size_t i = 0; i < names_.size(); ++i)
        names_[i] =
            layers ? layer + "." + std::to_string(i) : letters_of(random, letters, between(random, 3, 20));
    in_turn_ = random() % 3 != 0;
    threads_ = random() % 3 ? 1 : between(random, 2, 8);
    told_ = std::to_string(names_.size()) + (in_turn_ ? " names in turn, " : " names, ") +
            std::to_string(threads_) + " threads: ";
    for (std::uint64_t count = random() % 5; count != 0; --count) {
        arguments_.emplace_back(letters_of(random, letters, between(random, 2, 10)), value(random));
        used_by_.push_back(random() % 3 ? 1 : static_cast<unsigned>(between(random, 2, 5)));
    }
}

void Kind::append_line(std::string& text, Random& random, std::uint64_t id, std::uint64_t ns) {
    const std::size_t name = in_turn_ ? id % names_.size() : random() % names_.size();
    const std::uint64_t dur = 100 + random() % 1'000'000, level = name == 0 ? 1 : 2;
    text += "{\"id\":" + std::to_string(id) + ",\"name\":\"" + names_[name] +
            "\",\"cat\":\"compute\",\"pid\":4711,\"tid\":" + std::to_string(4711 + random() % threads_) +
            ",\"ts\":" + std::to_string(ns / 1000) + "." + std::to_string(100 + ns % 900) +
            ",\"dur\":" + std::to_string(dur / 1000) + "." + std::to_string(100 + dur % 900) +
            ",\"ph\":\"X\",\"args\":{\"hhash\":\"08cf3707b570dbec\",\"p_idx\":" +
            std::to_string(level == 1 ? 0 : id - name) + ",\"level\":" + std::to_string(level);
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
        if (name % used_by_[i]) continue;
        text += ",\"" + arguments_[i].first + "\":";
        arguments_[i].second(text, random, id);
    }
    text += "}}\n";
}

Lines::Lines(std::uint64_t seed) : random_(seed) {
    const std::uint64_t way = random_() % 5;
    for (std::uint64_t i = 0; i <= (way < 3 ? 0 : 1 + random_() % 2); ++i) kinds_.emplace_back(random_());
    // From line to line, or once in some megabytes.
    run_ = of_any_size(random_, 1, 30'000);
    left_ = run_;
}

std::string Lines::next(std::size_t bytes) {
    std::string text;
    text.reserve(bytes + 4096);
    while (text.size() < bytes) {
        ns_ += 300 + random_() % 700'000;
        if (left_-- == 0) {
            kind_ = (kind_ + 1) % kinds_.size();
            left_ = 1 + random_() % (2 * run_);
        }
        kinds_[kind_].append_line(text, random_, ++id_, ns_);
    }
    return text;
}

std::string Lines::told() const {
    std::string text;
    for (const Kind& kind : kinds_) text += "[" + kind.told() + "] ";
    return kinds_.size() == 1 ? text : text + "for " + std::to_string(run_) + " lines in turn";
}

}  // namespace made
