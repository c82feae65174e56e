#include "package.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "crc32.h"
#include "failure.h"

namespace keel {

namespace {

constexpr uint64_t ALIGNMENT = 64, MOST = 1 << 16, LONGEST = 200, COMMENT = 8;
constexpr uint64_t LOCAL = 30, ROW = 46, END = 22, LOCATOR = 20, END64 = 56;
constexpr uint64_t FULL = 0xFFFFFFFF;  // says that a number is in the extra field

}  // namespace

Package::Package(const std::string &path) : path_(path) {
    int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) failed("The package " + path + " cannot be opened: " + strerror(errno) + ".");
    struct stat info;
    void *mapped = MAP_FAILED;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        size_ = static_cast<uint64_t>(info.st_size);
        mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    }
    close(file);
    if (mapped == MAP_FAILED) bad("It is empty, or cannot be mapped to memory.");
    content_ = static_cast<const char *>(mapped);
    try {
        Table all = table();
        uint64_t at = all.start;
        for (uint64_t k = 0; k < all.count; k++) at = row(at, all.end);
        if (at != all.end) bad("Its table is longer than its members.");
        check_structure();
    } catch (...) {
        munmap(mapped, size_);
        throw;
    }
}

Package::~Package() { munmap(const_cast<char *>(content_), size_); }

void Package::bad(const std::string &why) const { bad_package(path_ + " cannot be loaded. " + why); }

std::string_view Package::member(const std::string &name, bool checked) const {
    auto found = members_.find(name);
    if (found == members_.end()) bad("It has no member " + name + ".");
    const Member &member = found->second;
    std::string_view bytes(content_ + member.start, member.end - member.start);
    if (checked && crc32(0, bytes.data(), bytes.size()) != member.crc)
        bad("Its member " + name + " is damaged: it does not have its checksum.");
    return bytes;
}

void Package::check_all_but(const std::string &other) const {
    for (const auto &[name, member] : members_)
        if (name.compare(0, other.size(), other) != 0) this->member(name);
}

// A little-endian number of so many bytes. All reads of the structure go through here or `mark`.
uint64_t Package::number(uint64_t at, int bytes) const {
    if (at > size_ || size_ - at < static_cast<uint64_t>(bytes)) bad("It ends early.");
    uint64_t value = 0;
    for (int k = bytes - 1; k >= 0; k--)
        value = value << 8 | static_cast<unsigned char>(content_[at + static_cast<uint64_t>(k)]);
    return value;
}

bool Package::mark(uint64_t at, const char *mark) const {
    return at <= size_ && size_ - at >= 4 && memcmp(content_ + at, mark, 4) == 0;
}

Package::Table Package::table() const {
    if (size_ < END + COMMENT) bad("It is not a package.");
    uint64_t tail = size_ - END - COMMENT;
    if (!mark(tail, "PK\5\6") || number(tail + 20, 2) != COMMENT || number(tail + 4, 4) != 0 ||
        number(tail + 8, 2) != number(tail + 10, 2))
        bad("It is not a package, or it is not complete.");
    Table all{number(tail + 10, 2), number(tail + 16, 4), tail};
    uint64_t size = number(tail + 12, 4);
    if (tail >= LOCATOR && mark(tail - LOCATOR, "PK\6\7")) {  // of more than 2 GiB, or of many members
        all.end = number(tail - LOCATOR + 8, 8);
        if (!mark(all.end, "PK\6\6")) bad("Its end is damaged.");
        all.count = number(all.end + 32, 8);
        size = number(all.end + 40, 8);
        all.start = number(all.end + 48, 8);
        if (all.end > tail || tail - all.end != END64 + LOCATOR) bad("Its end is damaged.");
    }
    if (all.start > all.end || all.end - all.start != size) bad("Its table is not where its end says.");
    if (all.count > MOST) bad("It has too many members.");
    return all;
}

// Reads a row of the table, and returns where the next one begins.
uint64_t Package::row(uint64_t at, uint64_t end) {
    uint64_t name_length = number(at + 28, 2), extra_length = number(at + 30, 2);
    uint64_t after = at + ROW + name_length + extra_length;
    if (!mark(at, "PK\1\2") || number(at + 32, 2) != 0 || after > end || name_length == 0 || name_length > LONGEST)
        bad("Its table is damaged.");
    std::string name(content_ + at + ROW, name_length);
    uint64_t values[3] = {number(at + 20, 4), number(at + 24, 4), number(at + 42, 4)};  // packed, size, header
    int wide = 0;
    for (uint64_t extra = at + ROW + name_length; extra + 4 <= after;) {
        uint64_t kind = number(extra, 2), length = number(extra + 2, 2);
        if (kind == 1)
            for (uint64_t &value : {std::ref(values[1]), std::ref(values[0]), std::ref(values[2])})
                if (value == FULL && 8u * static_cast<unsigned>(++wide) <= length)
                    value = number(extra + 8u * static_cast<unsigned>(wide) - 4, 8);
        extra += 4 + length;
    }
    uint64_t header = values[2], size = values[1];
    if (number(at + 8, 2) != 0 || number(at + 10, 2) != 0 || values[0] != size)
        bad("Its member " + name + " is compressed or encrypted. The members of packages are neither.");
    if (header > at || !mark(header, "PK\3\4")) bad("The header of its member " + name + " is damaged.");
    uint64_t local = number(header + 26, 2), start = header + LOCAL + local + number(header + 28, 2);
    if (local != name_length || header + LOCAL + local > size_ ||
        memcmp(content_ + header + LOCAL, name.data(), local) != 0 || start > at || size > at - start)
        bad("The header of its member " + name + " is damaged.");
    if (start % ALIGNMENT != 0) bad("Its member " + name + " is not aligned.");
    Member member{header, start, start + size, static_cast<uint32_t>(number(at + 16, 4))};
    if (!members_.emplace(name, member).second) bad("Two of its members have the name " + name + ".");
    return after;
}

// The checksum at the end is of all bytes that are not in members, which follow each other without gaps.
void Package::check_structure() const {
    std::map<uint64_t, const Member *> by_place;
    for (const auto &[name, member] : members_) by_place[member.header] = &member;
    uint64_t at = 0;
    uint32_t crc = 0;
    for (const auto &[header, member] : by_place) {
        if (header != at) bad("Its members do not follow each other.");
        crc = crc32(crc, content_ + at, member->start - at);
        at = member->end;
    }
    crc = crc32(crc, content_ + at, size_ - COMMENT - at);
    if (words("%08x", crc) != std::string_view(content_ + size_ - COMMENT, COMMENT))
        bad("Its headers are damaged: they do not have the checksum at its end.");
}

}  // namespace keel
