"""A declaration for a member is found by the member's name; an unknown name or a second declaration is refused."""

from __future__ import annotations

import pytest

from keel_conformance.by_member import ByMember


def test_a_function_is_declared_for_several_members() -> None:
    rule: ByMember[object] = ByMember()

    @rule("prod", "cumprod")
    def product() -> None: ...

    assert rule.declared == {"prod": product, "cumprod": product}


@pytest.mark.parametrize("name", ["produkt", "sum"])
def test_what_is_no_member_or_declared_twice_is_refused(name: str) -> None:
    rule: ByMember[object] = ByMember()
    rule("sum")(1)
    with pytest.raises(ValueError, match=f"{name} is not a member, or is declared twice"):
        rule(name)(2)
