// The file of a package: a zip archive whose members are stored, aligned, and under checksums. It is mapped to memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace keel {

class Package {
  public:
    // Maps a file, and checks all of it but the contents of members. Throws KEEL_BAD_PACKAGE, or KEEL_FAILED if it
    // cannot be read.
    explicit Package(const std::string &path);
    ~Package();
    Package(const Package &) = delete;
    Package &operator=(const Package &) = delete;

    bool has(const std::string &name) const { return members_.count(name) != 0; }

    // The bytes of a member. Throws KEEL_BAD_PACKAGE if there is none of this name, or if it is to be `checked` and
    // does not have its checksum.
    std::string_view member(const std::string &name, bool checked = true) const;

    // Checks the contents of all members but those whose names begin with `other`. Throws KEEL_BAD_PACKAGE.
    void check_all_but(const std::string &other) const;

  private:
    struct Member {
        uint64_t header, start, end;
        uint32_t crc;
    };
    struct Table {
        uint64_t count, start, end;
    };

    Table table() const;
    uint64_t row(uint64_t at, uint64_t end);
    void check_structure() const;
    uint64_t number(uint64_t at, int bytes) const;
    bool mark(uint64_t at, const char *mark) const;
    [[noreturn]] void bad(const std::string &why) const;

    std::string path_;
    const char *content_ = nullptr;
    uint64_t size_ = 0;
    std::map<std::string, Member> members_;
};

}  // namespace keel
