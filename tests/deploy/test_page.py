"""docs/deploy.md: few commands, about services, files and volumes that are there."""

from __future__ import annotations

import re

import pytest

from tests.deploy.stack import KUBERNETES, compose, example, of_kind, services
from tests.fixtures.places import ROOT

MOST_COMMANDS = 10
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_a_clean_machine_needs_at_most_ten_commands():
    commands = BLOCKS[0].splitlines()
    assert commands[0].startswith("git clone") and commands[-1].startswith("curl ")
    assert len(commands) <= MOST_COMMANDS


def test_commands_name_services_of_the_compose_file():
    names = re.findall(r"docker compose (?:run|exec)((?: --?[\w-]+(?: tar\b)?)*) ([\w-]+)", "\n".join(BLOCKS))
    assert len(names) >= 7
    assert {name for _, name in names} <= set(services())


@pytest.mark.parametrize("volume", compose()["volumes"])
def test_the_page_says_of_every_volume_whether_it_is_backed_up(volume):
    table = PAGE.partition("| volume |")[2].partition("\n\n")[0]
    assert f"`{volume}`" in table or (volume.startswith("scratch") and "`scratch*`" in table)


def test_archives_are_made_of_the_folders_that_volumes_are_mounted_on_and_unpacked_into_them():
    text = PAGE.partition("## Back-up")[2]
    archives = {mode: set(re.findall(rf"(mlflow|worker|keys|setup) (?:tar )?-C (\S+) -{mode}f", text)) for mode in "cx"}
    assert len(archives["c"]) == 4 and archives["c"] == archives["x"]
    for name, folder in archives["c"]:
        assert any(volume.split(":")[1] == folder for volume in services()[name]["volumes"]), name


def test_nothing_that_makes_tables_runs_before_the_database_is_restored():
    commands = BLOCKS[-1].splitlines()
    (restore,) = [number for number, command in enumerate(commands) if " psql " in command]
    assert commands[:restore] == ["docker compose up --detach --wait postgres"]


@pytest.mark.parametrize("name", services())
def test_the_page_says_what_each_service_is(name):
    assert f"`{name}`" in PAGE


def test_the_page_names_the_images_that_the_example_asks_for():
    assert f"pliant-$system:{example()['IMAGE_TAG']}" in BLOCKS[0]


def test_secrets_and_labels_of_the_cluster_are_those_that_the_page_makes():
    made = set(re.findall(r"create secret (?:generic|tls) ([\w-]+)", PAGE))
    used = {"pliant-tls", "pliant-keys", "pliant-signing"}
    assert made == used
    text = "\n".join(path.read_text(encoding="utf-8") for path in KUBERNETES.rglob("*.yaml"))
    assert all(name in text for name in used)
    labels = set(re.findall(r"kubectl label namespace \w+ ([\w-]+)=true", PAGE))
    policies = str(of_kind("NetworkPolicy"))
    assert len(labels) == 3 and all(label in policies for label in labels)
