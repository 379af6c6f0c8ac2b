"""A release is read from its tags as it was written; one that cannot be read names nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import ArtifactError, RegistryError
from pliant.registry.package import Published
from pliant.registry.releases import (
    CONFIGURATION,
    FORMER,
    FORMER_CONFIGURATION,
    MODELS,
    RegistryRelease,
    ReleaseView,
    from_version,
    to_tags,
)

VERSIONS = {"pliant-bins-a": 3, "pliant-bins-encoder-a": 2}
DIGESTS = {"pliant-bins-a": "x", "pliant-bins-encoder-a": "y"}


def version(number: object, tags: dict[str, str]) -> SimpleNamespace:
    return SimpleNamespace(version=number, tags=tags, source="place", run_id="run", description=None)


@given(
    st.dictionaries(st.text(min_size=1), st.tuples(st.integers(1), st.text()), max_size=5),
    st.none() | st.integers(1, 98),
    st.tuples(st.text(), st.text(), st.text()),
)
def test_a_release_survives_the_way_through_its_tags(models, former, notes):
    versions = {name: number for name, (number, _) in models.items()}
    digests = {name: digest for name, (_, digest) in models.items()}
    wanted = RegistryRelease("bins", 99, former, versions, digests, "", None, *notes)
    read = from_version("bins", version("99", to_tags(wanted)))
    assert read == wanted and (read.since, read.state, read.reason) == notes
    assert (read.source, read.run, read.name) == ("place", "run", "release 99 of bins")


@pytest.mark.parametrize("models", [None, "", "{", "[]", "3", '{"a": 3}', '{"a": ["x", "y"]}', '{"a": [1, 2, 3]}'])
def test_one_whose_models_cannot_be_read_names_none(models):
    tags = {} if models is None else {MODELS: models}
    read = from_version("bins", version(2, tags))
    assert (read.versions, read.digests, read.former) == ({}, {}, None)


@pytest.mark.parametrize(
    ("former", "read"), [("1", 1), ("2", None), ("3", None), ("-1", None), ("x", None), ("", None)]
)
def test_only_an_older_release_was_replaced_so_that_following_them_ends(former, read):
    assert from_version("bins", version(2, {FORMER: former})).former == read


@pytest.mark.parametrize("tag", [CONFIGURATION, FORMER_CONFIGURATION])
def test_configurations_are_read_from_the_last_tag_on_the_page_and_of_older_releases_from_their_own(tag):
    wanted = RegistryRelease("bins", 2, 1, VERSIONS, DIGESTS, since="x", configurations={"pliant-bins-a": '{"a": 1}'})
    tags = to_tags(wanted)
    assert max(tags) == CONFIGURATION
    tags[tag] = tags.pop(CONFIGURATION)
    assert from_version("bins", version(2, tags)).configurations == wanted.configurations


class Registry:
    def __init__(self) -> None:
        self.discarded: list[Path] = []

    def fetch(self, name, which):
        digest = DIGESTS.get(name, "other") if which == VERSIONS.get(name) else "other"
        return Path(name, str(which)), Published(name, which, digest, "", {})

    def names(self, prefix):
        return [prefix + "a"]

    def discard(self, folder):
        self.discarded.append(folder)


def view(**digests: str) -> tuple[ReleaseView, Registry]:
    registry = Registry()
    return ReleaseView(registry, RegistryRelease("bins", 4, None, VERSIONS, {**DIGESTS, **digests})), registry


def test_a_view_shows_the_versions_of_its_release_whatever_the_alias():
    shown, registry = view()
    assert shown.versions("pliant-bins-e", "any") == {"pliant-bins-encoder-a": 2}
    assert list(shown.versions("pliant-bins-", "any")) == sorted(VERSIONS)
    assert shown.version("pliant-bins-a", "any").version == 3
    assert shown.version("pliant-bins-b", "any") is None
    assert shown.fetch("pliant-bins-a", "any")[0] == Path("pliant-bins-a", "3")
    assert shown.fetch("pliant-bins-a", 1)[0] == Path("pliant-bins-a", "1")  # another version, by its number
    assert shown.names("pliant-") == ["pliant-a"]
    shown.discard(Path("folder"))
    assert registry.discarded == [Path("folder")]


def test_a_model_that_the_release_does_not_name_is_an_error():
    with pytest.raises(RegistryError, match="release 4 of bins names no version of pliant-bins-b"):
        view()[0].fetch("pliant-bins-b", "champion")


@pytest.mark.parametrize("which", ["champion", 3])
def test_another_artifact_under_the_released_number_is_refused_and_discarded(which):
    shown, registry = view(**{"pliant-bins-a": "another"})
    with pytest.raises(
        ArtifactError, match="version 3 of pliant-bins-a is not the artifact that release 4 of bins names"
    ):
        shown.fetch("pliant-bins-a", which)
    assert registry.discarded == [Path("pliant-bins-a", "3")]
