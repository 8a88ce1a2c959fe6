// The host, as the names of files tell it.
#pragma once

#include <string>

namespace dftrace {

// The host's name as it stands in file names: anything but letters, digits and `._-` becomes `_`.
std::string host_name();

}  // namespace dftrace
