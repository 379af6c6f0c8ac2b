"""docs/deploy.md: few commands, about services, files and volumes that are there."""

from __future__ import annotations

import re

from tests.deploy.stack import KUBERNETES, compose, of_kind, services
from tests.fixtures.places import ROOT

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_names_services_and_volumes_of_the_compose_file_and_all_of_them():
    names = re.findall(r"docker compose (?:run|exec)((?: --?[\w-]+(?: tar\b)?)*) ([\w-]+)", "\n".join(BLOCKS))
    assert len(names) >= 7 and {name for _, name in names} <= set(services())
    assert all(f"`{name}`" in PAGE for name in services())
    table = PAGE.partition("| volume |")[2].partition("\n\n")[0]
    named = {volume for volume in compose()["volumes"] if f"`{volume}`" in table}
    assert all(volume.startswith("scratch") for volume in set(compose()["volumes"]) - named) and "`scratch*`" in table


def test_archives_are_made_of_the_folders_that_volumes_are_mounted_on_and_unpacked_into_them():
    text = PAGE.partition("## Back-up")[2]
    archives = {mode: set(re.findall(rf"(mlflow|worker|keys|setup) (?:tar )?-C (\S+) -{mode}f", text)) for mode in "cx"}
    assert len(archives["c"]) == 4 and archives["c"] == archives["x"]
    for name, folder in archives["c"]:
        assert any(volume.split(":")[1] == folder for volume in services()[name]["volumes"]), name


def test_secrets_and_labels_of_the_cluster_are_those_that_the_page_makes():
    made = set(re.findall(r"create secret (?:generic|tls) ([\w-]+)", PAGE))
    used = {"pliant-tls", "pliant-keys", "pliant-signing"}
    assert made == used
    text = "\n".join(path.read_text(encoding="utf-8") for path in KUBERNETES.rglob("*.yaml"))
    assert all(name in text for name in used)
    labels = set(re.findall(r"kubectl label namespace \w+ ([\w-]+)=true", PAGE))
    policies = str(of_kind("NetworkPolicy"))
    assert len(labels) == 3 and all(label in policies for label in labels)
