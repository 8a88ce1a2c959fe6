// Python values to settings.
#include "run/settings.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <variant>

#include "arguments/json_args.hpp"
#include "dftrace/text/hash.hpp"

namespace dftrace::py {

namespace {

// Reads members of the settings dict; the first that is missing or of the wrong type throws.
class SettingsReader {
  public:
    explicit SettingsReader(PyObject* dict) : dict_(dict) {}
    void into(std::string& value, const SettingField& field) const {
        value = field.from == SettingFrom::caller_path ? path(field.key) : text(field.key);
    }
    void into(bool& value, const SettingField& field) const { value = flag(field.key); }
    void into(Compression& value, const SettingField& field) const {
        value = compression_from(text(field.key));
    }
    template <typename Number>
    void into(Number& value, const SettingField& field) const {
        value = static_cast<Number>(number(field.key));
    }
    std::string text(const char* key) const {
        Py_ssize_t bytes = 0;
        const char* utf8 = PyUnicode_AsUTF8AndSize(item(key), &bytes);
        if (!utf8) throw std::invalid_argument(std::string(key) + " must be text");
        return {utf8, static_cast<std::size_t>(bytes)};
    }
    // As the file system has it, which need not be text.
    std::string path(const char* key) const {
        PyObject* encoded = nullptr;
        if (!PyUnicode_FSConverter(item(key), &encoded))
            throw std::invalid_argument(std::string(key) + " must be a path");
        const Ref held(encoded);
        return {PyBytes_AS_STRING(encoded), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded))};
    }
    std::uint64_t number(const char* key) const {
        const unsigned long long value = PyLong_AsUnsignedLongLong(item(key));
        if (PyErr_Occurred()) throw std::invalid_argument(std::string(key) + " must be a positive integer");
        return value;
    }
    bool flag(const char* key) const { return PyObject_IsTrue(item(key)) == 1; }

  private:
    PyObject* item(const char* key) const {
        PyObject* value = PyDict_GetItemString(dict_, key);
        if (!value) throw std::invalid_argument(std::string("no setting ") + key);
        return value;
    }
    PyObject* dict_;
};

}  // namespace

TraceSettings settings_from(PyObject* dict) {
    const SettingsReader read(dict);
    TraceSettings settings;
    for (const SettingField& field : setting_fields)
        if (field.from != SettingFrom::here)
            std::visit([&](auto member) { read.into(settings.*member, field); }, field.member);
    settings.host_hash = hash_hex(settings.host);
    max_arg_bytes = read.number("max_arg_bytes");
    return settings;
}

}  // namespace dftrace::py
