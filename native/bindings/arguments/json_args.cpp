// Values keep their JSON types where JSON and Perfetto have them.
#include "arguments/json_args.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include "arguments/numbers.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace::py {

std::size_t max_arg_bytes = 1 << 20;
thread_local int Converting::depth = 0;

namespace {

constexpr int max_depth = 16;
// Members that the line itself has: a user's key of that name gets a `_` behind it.
constexpr std::array<std::string_view, 6> reserved{"hhash", "p_idx", "level", "count", "error", "unfinished"};

std::string shown_text(PyObject* object);

class Serialiser {
  public:
    explicit Serialiser(std::string& out) : out_(out), start_(out.size()) {}
    std::uint64_t sanitised = 0;

    void value(PyObject* object, int depth) {
        if (object == Py_True) return put("true");
        if (object == Py_False) return put("false");
        if (PyUnicode_Check(object)) return text(object);
        if (PyLong_Check(object)) return integer(object);
        if (PyFloat_Check(object)) return real(PyFloat_AS_DOUBLE(object));
        if (object == Py_None) {
            // In a list Perfetto drops a null and moves the rest up; as a member it only drops it.
            if (in_list_) return unlike("\"None\"");
            return put("null");
        }
        // What others hand over is walked only so deep (it may hold itself) and only so far.
        if (depth >= max_depth || out_.size() - start_ > max_arg_bytes) return unlike("\"...\"");
        if (Converting::again() && runs_code(object)) return foreign(object);
        if (PyDict_Check(object)) return dict(object, depth);
        if (PyList_Check(object) || PyTuple_Check(object) || PyAnySet_Check(object))
            return list(object, depth);
        if (is_a(object, "Tensor")) return tensor(object, depth);
        if (is_a(object, "numpy.generic") || is_a(object, "numpy.ndarray")) {
            if (std::strstr(Py_TYPE(object)->tp_name, "complex")) return foreign(object);
            if (plain_item(object, depth)) return;
        }
        if (PyIndex_Check(object)) {
            Ref number(PyNumber_Index(object));
            if (number) return integer(number.get());
            forget_error();
        }
        const PyNumberMethods* numbers = Py_TYPE(object)->tp_as_number;
        if (numbers && numbers->nb_float) {
            Ref number(PyNumber_Float(object));
            if (number) return real(PyFloat_AS_DOUBLE(number.get()));
            forget_error();
        }
        foreign(object);
    }

    // Each item as `,"key":value`, or without the first comma.
    void members(PyObject* dict, int depth, bool leading_comma, bool top) {
        Ref items(PyDict_Items(dict));  // a copy: a value's __str__ may change the dict
        if (!items) return forget_error();
        std::set<std::string> used;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
            PyObject* item = PyList_GET_ITEM(items.get(), i);
            if (leading_comma || i) out_.push_back(',');
            append_json_string(out_, free_key(PyTuple_GET_ITEM(item, 0), top, used));
            out_.push_back(':');
            value(PyTuple_GET_ITEM(item, 1), depth);
        }
    }

    // The quick way for what nearly every event has: string keys, plain numbers and strings. False
    // if something else came up; then no code of the user has run yet. `note` is told where each one is.
    template <class Note>
    bool plain_members(PyObject* dict, const Note& note) {
        PyObject *name = nullptr, *object = nullptr;
        Py_ssize_t at = 0;
        while (PyDict_Next(dict, &at, &name, &object)) {
            const bool plain =
                PyUnicode_CheckExact(name) && (PyLong_CheckExact(object) || PyUnicode_CheckExact(object) ||
                                               PyFloat_CheckExact(object) || PyBool_Check(object));
            Py_ssize_t bytes = 0;
            const char* utf8 = plain ? PyUnicode_AsUTF8AndSize(name, &bytes) : nullptr;
            if (plain && !utf8) forget_error();
            const std::string_view key(utf8 ? utf8 : "", static_cast<std::size_t>(bytes));
            if (!utf8 || key.size() > max_arg_bytes || is_reserved_key(key)) return false;
            const std::size_t begin = out_.size();
            out_.push_back(',');
            append_json_string(out_, key);
            out_.push_back(':');
            const std::size_t key_bytes = out_.size() - begin;
            value(object, 0);
            note(PlainText::Member{begin, key_bytes, out_.size()});
        }
        return true;
    }

  private:
    void put(std::string_view text) { out_.append(text); }
    void unlike(std::string_view text) {
        ++sanitised;
        out_.append(text);
    }

    void bounded(std::string_view text) {
        if (text.size() > max_arg_bytes) {
            ++sanitised;
            text = text.substr(0, whole_characters(text, max_arg_bytes));
        }
        append_json_string(out_, text);
    }

    void text(PyObject* object) {
        Py_ssize_t bytes = 0;
        if (const char* utf8 = PyUnicode_AsUTF8AndSize(object, &bytes))
            return bounded({utf8, static_cast<std::size_t>(bytes)});
        forget_error();
        ++sanitised;
        bounded(shown_text(object));
    }

    void integer(PyObject* object) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow == 0 && number != no_number && !PyErr_Occurred()) {
            char digits[24];
            const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
            return put({digits, static_cast<std::size_t>(end - digits)});
        }
        forget_error();
        // Beyond 63 bits Perfetto reads -1. Hexadecimal has no limit on the digits and no cost.
        ++sanitised;
        Ref digits(PyNumber_ToBase(object, 16));
        if (!digits) {
            forget_error();
            return put("\"int\"");
        }
        const bool shown_by_user = !PyLong_CheckExact(object) && Converting::again();
        Ref decimal(shown_by_user ? nullptr : PyObject_Str(object));
        if (!decimal) forget_error();
        text(decimal ? decimal.get() : digits.get());
    }

    void real(double number) {
        // NaN and infinities are not JSON, and Perfetto loses every argument behind one.
        if (std::isnan(number)) return unlike("\"NaN\"");
        if (std::isinf(number)) return unlike(number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        char* digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr);
        if (!digits) {
            forget_error();
            return unlike("\"float\"");
        }
        put_real(digits);
        PyMem_Free(digits);
    }

    // Perfetto's reader takes a fraction of twenty or more digits for another number. Such fractions
    // begin with `0.000`: repr writes an exponent from 1e-4 down, this does from 1e-3 down.
    void put_real(std::string_view digits) {
        const std::size_t sign = digits.starts_with('-') ? 1 : 0;
        constexpr std::string_view small = "0.000";
        if (!digits.substr(sign).starts_with(small)) return put(digits);
        const std::string_view significant = digits.substr(sign + small.size());
        put(digits.substr(0, sign));
        put(significant.substr(0, 1));
        if (significant.size() > 1) {
            put(".");
            put(significant.substr(1));
        }
        put("e-04");
    }

    void dict(PyObject* object, int depth) {
        const bool outer = std::exchange(in_list_, false);
        out_.push_back('{');
        members(object, depth + 1, false, false);
        out_.push_back('}');
        in_list_ = outer;
    }

    void list(PyObject* object, int depth) {
        Ref items(PySequence_List(object));
        if (!items) {
            forget_error();
            return foreign(object);
        }
        const bool outer = std::exchange(in_list_, true);
        out_.push_back('[');
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
            if (i) out_.push_back(',');
            value(PyList_GET_ITEM(items.get(), i), depth + 1);
        }
        out_.push_back(']');
        in_list_ = outer;
    }

    // A key that no other member of the object has: JSON readers keep only one of two equal ones.
    std::string free_key(PyObject* object, bool top, std::set<std::string>& used) {
        std::string key = shown_text(object);
        bool changed = !PyUnicode_Check(object) || key.size() > max_arg_bytes;
        if (key.size() > max_arg_bytes) key.resize(whole_characters(key, max_arg_bytes));
        for (; (top && is_reserved_key(key)) || used.count(key); changed = true) key.push_back('_');
        sanitised += changed;
        used.insert(key);
        return key;
    }

    // The longest beginning of at most `bytes` bytes that does not cut a character.
    static std::size_t whole_characters(std::string_view text, std::size_t bytes) {
        while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
        return bytes;
    }

    static bool runs_code(PyObject* object) {
        return !PyDict_CheckExact(object) && !PyList_CheckExact(object) && !PyTuple_CheckExact(object) &&
               !PySet_CheckExact(object) && !PyFrozenSet_CheckExact(object);
    }

    // Whether a type of that name is the object's or above it: classes that others derive count, too.
    static bool is_a(PyObject* object, const char* type_name) {
        PyObject* order = Py_TYPE(object)->tp_mro;
        for (Py_ssize_t i = 0; order && i < PyTuple_GET_SIZE(order); ++i)
            if (std::strcmp(as<PyTypeObject>(PyTuple_GET_ITEM(order, i))->tp_name, type_name) == 0)
                return true;
        return false;
    }

    // The number of an array without dimensions; false if it has some, or holds something else.
    bool plain_item(PyObject* object, int depth) {
        Ref dimensions(PyObject_GetAttrString(object, "ndim"));
        const bool scalar =
            dimensions && PyLong_Check(dimensions.get()) && !PyObject_IsTrue(dimensions.get());
        Ref item(scalar ? PyObject_CallMethod(object, "item", nullptr) : nullptr);
        if (!item) forget_error();
        if (!item ||
            (!PyBool_Check(item.get()) && !PyLong_CheckExact(item.get()) && !PyFloat_CheckExact(item.get())))
            return false;
        value(item.get(), depth);
        return true;
    }

    // Without dimensions and on the host. One of a derived class may stand for what is elsewhere.
    static bool is_at_hand(PyObject* tensor) {
        const char* kind = Py_TYPE(tensor)->tp_name;
        if (std::strcmp(kind, "Tensor") != 0 && std::strcmp(kind, "Parameter") != 0) return false;
        Ref device(PyObject_GetAttrString(tensor, "device"));
        Ref place(device ? PyObject_GetAttrString(device.get(), "type") : nullptr);
        if (!place) forget_error();
        return place && PyUnicode_Check(place.get()) &&
               PyUnicode_CompareWithASCIIString(place.get(), "cpu") == 0;
    }

    // Other tensors are described, never read: reading one on a GPU would wait for the GPU.
    void tensor(PyObject* object, int depth) {
        if (is_at_hand(object) && plain_item(object, depth)) return;
        std::string description = Py_TYPE(object)->tp_name;
        const char* separator = "(";
        for (const char* attribute : {"shape", "dtype", "device"}) {
            Ref value(PyObject_GetAttrString(object, attribute));
            if (value && std::strcmp(attribute, "shape") == 0) value = Ref(PySequence_Tuple(value.get()));
            Ref shown(value ? PyObject_Str(value.get()) : nullptr);
            const char* utf8 = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
            if (!utf8) {
                forget_error();
                continue;
            }
            description += separator + std::string(attribute) + "=" + utf8;
            separator = ", ";
        }
        append_json_string(out_, *separator == '(' ? description : description + ")");
    }

    void foreign(PyObject* object) {
        ++sanitised;
        bounded(shown_text(object));
    }

    std::string& out_;
    const std::size_t start_;
    bool in_list_ = false;
};

// An encoded surrogate is three bytes, of which the checker would make three marks: one will do.
std::string without_surrogates(std::string_view encoded) {
    std::string out;
    for (std::size_t i = 0; i < encoded.size(); ++i) {
        const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(encoded[k]); };
        if (byte(i) == 0xED && i + 2 < encoded.size() && byte(i + 1) >= 0xA0) {
            out.append("\xEF\xBF\xBD");
            i += 2;
        } else {
            out.push_back(encoded[i]);
        }
    }
    return out;
}

std::string shown_text(PyObject* object) {
    const bool runs_code = !PyUnicode_Check(object) && !PyLong_CheckExact(object);
    Ref shown(PyUnicode_Check(object)            ? Py_NewRef(object)
              : runs_code && Converting::again() ? nullptr
                                                 : PyObject_Str(object));
    if (!shown) {
        forget_error();
        return "<" + std::string(Py_TYPE(object)->tp_name) + ">";
    }
    Py_ssize_t bytes = 0;
    if (const char* utf8 = PyUnicode_AsUTF8AndSize(shown.get(), &bytes))
        return {utf8, static_cast<std::size_t>(bytes)};
    // Lone surrogates: not UTF-8, and as escapes they make Perfetto refuse the file.
    forget_error();
    Ref encoded(PyUnicode_AsEncodedString(shown.get(), "utf-8", "surrogatepass"));
    if (!encoded) {
        forget_error();
        return "?";
    }
    return without_surrogates(
        {PyBytes_AS_STRING(encoded.get()), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.get()))});
}

}  // namespace

std::string text_of(PyObject* object) {
    const Converting converting;
    return shown_text(object);
}

std::uint64_t append_members(std::string& out, PyObject* dict) {
    // A span may end because of an exception, which is not one of the conversion's, and passes on.
    ErrorAside aside;
    const std::size_t before = out.size();
    Serialiser quick(out);
    if (quick.plain_members(dict, [](const PlainText::Member&) {})) return quick.sanitised;
    out.resize(before);
    // A user's __str__ may raise and record.
    const Converting converting;
    Serialiser careful(out);
    careful.members(dict, 0, true, true);
    forget_error();
    return careful.sanitised;
}

std::uint64_t append_plain(std::string& out, PyObject* dict, std::vector<PlainText::Member>& members) {
    ErrorAside aside;
    Serialiser quick(out);
    const bool plain =
        quick.plain_members(dict, [&members](const PlainText::Member& member) { members.push_back(member); });
    return quick.sanitised + !plain;
}

bool is_reserved_key(std::string_view key) noexcept {
    return std::find(reserved.begin(), reserved.end(), key) != reserved.end();
}

std::uint64_t append_value(std::string& out, PyObject* value) {
    ErrorAside aside;
    const Converting converting;
    Serialiser serialiser(out);
    serialiser.value(value, 0);
    forget_error();
    return serialiser.sanitised;
}

}  // namespace dftrace::py
