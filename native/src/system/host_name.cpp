// Asking for the name of the host.
#include "dftrace/system/host_name.hpp"

#include <unistd.h>

#include <cctype>

namespace dftrace {

std::string host_name() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    std::string host = name;
    for (char& c : host)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '_';
    return host.empty() ? "localhost" : host;
}

}  // namespace dftrace
