"""Rewrites PTX that ptxas miscompiles.

Packed additions: of ``add.s16x2 d, a, 0x00020000``, if only its upper half is read, ptxas 12.8 and 12.9 make
``VIADD.16x2 d, a, 0x0`` for sm_90. It reads the lower half, and the lower half of the constant. LLVM makes such
additions of indices along axes so short that their quotients fit 8 bits, as in adaptive pooling.

Comparisons with what cannot be negative: of ``setp.gt.f32 p, |a|, -2`` they make ``true``, for NaN, too, which is not
greater than anything.  LLVM makes it of ``minimum(a, -a) < 2``, too.  The negation of its opposite is left alone.
"""

from __future__ import annotations

import re

_PACKED = re.compile(r"\badd\.([su]16)x2\s+(%\w+),\s*(%\w+),\s*(%\w+);")
_SINGLE = (
    r"{ .reg .b16 a, b, c, d; mov.b32 {a, b}, \3; mov.b32 {c, d}, \4; "
    r"add.\1 a, a, c; add.\1 b, b, d; mov.b32 \2, {a, b}; }"
)
_NOT_NEGATIVE = re.compile(r"\b(?:abs|ex2\.approx)(?:\.ftz)?\.f32\s+(%\w+),")
_NEGATED = re.compile(r"\bneg(?:\.ftz)?\.f32\s+(%\w+),\s*(%\w+);")
_COMPARED = re.compile(r"\bsetp\.(gt|ge|lt|le)((?:\.ftz)?\.f32)\s+(%\w+),\s*(%\w+),\s*0f([0-9A-Fa-f]{8});")
_UNLESS = {"gt": "leu", "ge": "ltu", "lt": "geu", "le": "gtu"}
_MINUS_ZERO = 1 << 31


def unpacked(ptx: str) -> str:
    """Replaces packed additions of 16-bit numbers by single ones."""
    return _PACKED.sub(_SINGLE, ptx)


def ordered(ptx: str) -> str:
    """Replaces comparisons of float32 that hold for every number but not for NaN by the negation of the opposite
    comparison.
    """
    least = set(_NOT_NEGATIVE.findall(ptx))  # registers that are not negative
    most = {d for d, a in _NEGATED.findall(ptx) if a in least}

    def turned(match: re.Match[str]) -> str:
        how, kind, to, what, literal = match.groups()
        number = int(literal, 16)
        above = what in least and how in ("gt", "ge") and (number >= _MINUS_ZERO or number == 0)
        below = what in most and how in ("lt", "le") and number <= _MINUS_ZERO
        if not above and not below:
            return match.group()
        return f"{{ .reg .pred other; setp.{_UNLESS[how]}{kind} other, {what}, 0f{literal}; not.pred {to}, other; }}"

    return _COMPARED.sub(turned, ptx)


def fixed(ptx: str) -> str:
    """Replaces all that ptxas miscompiles."""
    return ordered(unpacked(ptx))
