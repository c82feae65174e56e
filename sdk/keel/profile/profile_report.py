"""The report on a model's speed: facts, and suggestions that follow from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from keel.extras import require
from keel.profile.profile_facts import ProfileFacts, facts_of
from keel.profile.profile_record import ProfileRecord
from keel.profile.suggestions import Suggestion, suggestions


@dataclass(frozen=True)
class Profile:
    """A report. ``as_json`` returns plain data. ``print`` prints text, and ``rich.print`` the same in color; both need
    the extra ``cli``.
    """

    facts: ProfileFacts
    suggestions: tuple[Suggestion, ...]

    def as_json(self) -> dict[str, Any]:
        facts, times = asdict(self.facts), self.facts.times
        facts["times"] |= {"host": times.host, "inside": times.inside, "launches": times.launches}
        return facts | {"suggestions": [asdict(one) for one in self.suggestions]}

    def __rich__(self) -> Any:
        require("cli", "A profile as text")
        from keel.profile.profile_text import document

        return document(self.facts, self.suggestions)

    def __str__(self) -> str:
        require("cli", "A profile as text")
        from keel.explanation_text import plain

        return plain(self.__rich__())


def report(record: ProfileRecord) -> Profile:
    """The report on what was measured."""
    facts = facts_of(record)
    return Profile(facts, suggestions(facts))
