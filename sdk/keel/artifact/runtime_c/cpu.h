// What this CPU can do, by the names that /proc/cpuinfo has for it.
#pragma once

#include <set>
#include <string>

namespace keel {

// True if the CPU has a feature, and the system lets programs use it.
bool cpu_has(const std::string &feature);

}  // namespace keel
