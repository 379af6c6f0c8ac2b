"""deploy/compose.yaml keeps to the Compose specification; services, settings, nginx.conf and docs/deploy.md say the same.

qa/stack/test_proxy.py runs nginx.conf on a real nginx.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from jsonschema import Draft202012Validator

from pliant.registry.signing.signatures import Trust, load_signer
from tests.deploy.stack import (
    DEPLOY,
    KUBERNETES,
    SYSTEMS,
    VARIABLE,
    check_settings,
    compose,
    compose_text,
    example,
    file_of,
    nginx_text,
    of_kind,
    services,
)
from tests.fixtures.places import ROOT

SCHEMA = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
ONE_OFF, FLOWS = ("setup", "keys"), ("setup", "keys", "worker", "notify")
SERVICES = services().items()
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
SECRET = re.compile(r"(^|_)(PASSWORD|SECRET|TOKEN|KEY|AUTH)(_|$)")


def mounts(name):
    return services()[name].get("volumes", ())


def holders(volume):
    """Return the services that mount a volume, or a volume at a place."""
    return [name for name, _ in SERVICES if any(f"{each}:".startswith(f"{volume}:") for each in mounts(name))]


def test_the_file_keeps_to_the_published_schema_of_the_compose_specification():
    schema = json.loads(file_of("check-jsonschema", SCHEMA).read_text(encoding="utf-8"))
    assert [error.message for error in Draft202012Validator(schema).iter_errors(compose())] == []
    wrong = {"services": {"proxy": {**services()["proxy"], "read_onyl": True}}}
    assert len(list(Draft202012Validator(schema).iter_errors(wrong))) == 1


@pytest.mark.parametrize("name", services())
def test_a_service_has_no_more_rights_than_it_needs_limits_and_one_version(name):
    service = services()[name]
    assert service["user"].split(":")[0] not in ("0", "root") and service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert not {"cap_add", "privileged", "network_mode", "pid"} & set(service)
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    cpus = float(service["deploy"]["resources"]["limits"]["cpus"])
    assert cpus <= 2 or cpus == float(example()["CPUS"])  # Docker refuses to start what may take more than there are
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    # Of one version, watched, started again, and waited for.
    assert re.search(r"\d+\.\d+", service["image"].rpartition(":")[2])
    assert service["image"].startswith("pliant-") == (f":{example()['IMAGE_TAG']}" in service["image"])
    if name not in ONE_OFF:
        assert service["healthcheck"]["test"][0] == "CMD" and service["restart"] == "unless-stopped"
    for needed, how in service.get("depends_on", {}).items():
        expected = "service_completed_successfully" if needed in ONE_OFF else "service_healthy"
        assert how["condition"] == expected


def test_the_proxy_alone_is_reached_from_outside_and_operators_from_this_machine_alone():
    assert [name for name, service in SERVICES if "ports" in service] == ["proxy"]
    assert services()["proxy"]["ports"] == ["8443:8443", "127.0.0.1:8444:8444"]
    for name, service in SERVICES:
        inside = all(compose()["networks"][network] == {"internal": True} for network in service["networks"])
        assert inside or name in ("proxy", "notify"), name
    hidden = {*services()["postgres"]["networks"], *services()["prefect-server"]["networks"]}
    assert not any(hidden & set(services()[system]["networks"]) for system in SYSTEMS)


def test_all_that_is_mounted_is_there_and_all_that_is_there_is_mounted():
    used = {volume.split(":")[0] for name, _ in SERVICES for volume in mounts(name)}
    assert set(compose()["volumes"]) == {source for source in used if not source.startswith(".")}
    for source in used - set(compose()["volumes"]):
        assert (DEPLOY / source).exists() and all(
            each.endswith(":ro") for name, _ in SERVICES for each in mounts(name) if each.startswith(f"{source}:")
        )
    assert set(compose()["secrets"]) == {secret for _, service in SERVICES for secret in service.get("secrets", ())}


def test_secrets_are_files_that_git_does_not_have_and_none_stands_in_the_file():
    ignored = (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()
    assert {"secrets/", ".env"} <= set(ignored)
    assert all(secret["file"].startswith("./secrets/") for secret in compose()["secrets"].values())
    for name, service in SERVICES:
        for variable, value in service.get("environment", {}).items():
            a_file = variable.endswith(("_FILE", "INITDB_ARGS")) or value.startswith("/")
            assert a_file or not SECRET.search(variable), f"{name} has {variable}"
            assert not re.search(r"://[^/@\s]*:[^/@\s]*@", value), f"{name}: {variable} holds a password"


def test_every_variable_and_profile_of_the_file_is_explained_in_the_example():
    assert {match[1] for match in VARIABLE.finditer(compose_text())} == set(example())
    assert set(example()["COMPOSE_PROFILES"].split(",")) == set(SYSTEMS)
    profiles = {profile for _, service in SERVICES for profile in service.get("profiles", ())}
    assert profiles == {*SYSTEMS, "tools"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_endpoint_accepts_its_variables_and_the_proxy_knows_its_port_and_its_limits(system):
    service = services()[system]
    settings = check_settings(system, service["environment"])
    assert settings.registry_uri == services()["worker"]["environment"]["MLFLOW_TRACKING_URI"]
    assert settings.allowed_hosts == system  # the Host that the proxy and Prometheus send
    assert (settings.threads, settings.log_format) == (1, "json")
    port = service["command"][service["command"].index("--port") + 1]
    assert f"127.0.0.1:{port}/readyz" in service["healthcheck"]["test"][-1]
    assert f"set $upstream {system}:{port};" in nginx_text()
    assert f'["{system}:{port}"], labels: {{system: {system}}}' in (DEPLOY / "targets.yaml").read_text(encoding="utf-8")
    # Its body may be as large at the proxy, which waits for an answer as long, and its events go by the proxy's door.
    first, *_ = nginx_values("client_max_body_size")
    assert first == "10m" and settings.max_body_bytes == 10 * 1024**2
    traffic = getattr(import_module(f"pliant.serving.{system}.service"), f"{system.capitalize()}Service").config[
        "traffic"
    ]
    usual, packing = nginx_values("proxy_read_timeout")
    assert f"{traffic['timeout']}s" == (packing if system == "packing" else usual)
    assert service["environment"]["PREFECT_API_URL"] == "http://proxy:4280/api" and "4280" in nginx_values("listen")


def nginx_values(directive):
    """Return what each line of nginx.conf with this directive sets."""
    return re.findall(rf"^\s*{directive}\s+([^;]+);", nginx_text(), re.MULTILINE)


def test_tls_is_of_this_decade():
    assert nginx_values("ssl_protocols") == ["TLSv1.2 TLSv1.3"]
    assert nginx_values("ssl_session_tickets") == ["off"]
    assert all("ssl" in value for value in nginx_values("listen") if value.startswith("84"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_endpoint_writes_its_own_state_alone_and_the_worker_finds_it_as_the_same_user(system):
    endpoint, worker = services()[system], services()["worker"]
    assert endpoint["user"] == worker["user"]
    home = endpoint["environment"]["PLIANT_HOME"]
    written = {volume for volume in endpoint["volumes"] if not volume.endswith(":ro")}
    assert written == {f"state-{system}:{home}", f"scratch-{system}:/var/tmp"}
    assert {f"state-{system}:{home}/services/{system}", f"state:{home}"} <= set(worker["volumes"])
    places = [volume.split(":")[1] for volume in written]
    for name in ("HOME", "TMPDIR", "BENTOML_HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR"):
        assert any(endpoint["environment"][name].startswith(place) for place in places), name


def test_the_worker_signs_what_it_publishes_and_nothing_else_is_served():
    worker = services()["worker"]["environment"]
    folder = worker["PLIANT_SIGNING_KEY"].rpartition("/")[0]
    assert holders("signing") == ["setup", "worker"] and "worker" in holders(f"signing:{folder}:ro")
    for name in ("worker", *SYSTEMS):
        place = services()[name]["environment"]["PLIANT_TRUSTED_KEYS"]
        assert name in holders(f"trusted:{place}:ro")
    assert holders("keys:/opt/pliant/keys") == ["setup", "keys"] and set(holders("keys:/keys:ro")) >= set(SYSTEMS)


def test_the_set_up_makes_a_pair_of_keys_once_and_lets_the_public_half_be_trusted(tmp_path):
    (command,) = services()["setup"]["command"]
    code = "import sys; from pliant.cli.main import main; sys.exit(main())"
    making = command.partition("; exec")[0].replace("pliant sign", f"{sys.executable} -c '{code}' sign")
    kept = set()
    for _ in range(2):
        for name in ("signing", "trusted"):
            (tmp_path / name).mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(["sh", "-ec", making], cwd=tmp_path, env=environment, check=True, capture_output=True)
        signer = load_signer(tmp_path / "signing" / "release.pem")
        assert list(Trust(tmp_path / "trusted").read()) == [signer.id]
        kept.add(signer.id)
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("profiles", "read"),
    [("tokens,bins", ["tokens", "bins"]), (",".join(SYSTEMS), list(SYSTEMS)), ("other", list(SYSTEMS))],
)
def test_prometheus_reads_the_endpoints_that_run_with_a_key_and_all_where_it_knows_none(tmp_path, profiles, read):
    text = (DEPLOY / "monitoring" / "prometheus.yaml").read_text(encoding="utf-8")
    command = services()["prometheus"]["command"][0].replace("$$", "$").replace("/etc/monitoring", str(DEPLOY))
    assert "#key authorization: {credentials_file: monitor.key}" in text and "sed 's/#key //'" in command
    assert "file_sd_configs: [{files: [targets.yaml]}]" in text and "/run/secrets/monitor_key monitor.key" in command
    filtering = command[command.index("{ grep") : command.index(" && ln -sf")]
    environment = {**os.environ, "ENDPOINTS": profiles}
    subprocess.run(["sh", "-ec", filtering], cwd=tmp_path, env=environment, check=True)
    assert re.findall(r"system: (\w+)", (tmp_path / "targets.yaml").read_text(encoding="utf-8")) == read


def test_the_page_names_services_and_volumes_and_archives_the_folders_that_they_are_mounted_on():
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    names = re.findall(r"docker compose (?:run|exec)(?: --?[\w-]+(?: tar\b)?)* ([\w-]+)", blocks)
    assert len(names) >= 7 and set(names) <= set(services())
    assert all(f"`{name}`" in PAGE for name in services())
    table = PAGE.partition("| volume |")[2].partition("\n\n")[0]
    named = {volume for volume in compose()["volumes"] if f"`{volume}`" in table}
    assert all(volume.startswith("scratch") for volume in set(compose()["volumes"]) - named) and "`scratch*`" in table
    text = PAGE.partition("## Back-up")[2]
    archives = {mode: set(re.findall(rf"(mlflow|worker|keys|setup) (?:tar )?-C (\S+) -{mode}f", text)) for mode in "cx"}
    assert len(archives["c"]) == 4 and archives["c"] == archives["x"]
    for name, folder in archives["c"]:
        assert any(volume.split(":")[1] == folder for volume in mounts(name)), name


def test_secrets_and_labels_of_the_cluster_are_those_that_the_page_makes():
    used = {"pliant-tls", "pliant-keys", "pliant-signing"}
    assert set(re.findall(r"create secret (?:generic|tls) ([\w-]+)", PAGE)) == used
    text = "\n".join(path.read_text(encoding="utf-8") for path in KUBERNETES.rglob("*.yaml"))
    assert all(name in text for name in used)
    labels = set(re.findall(r"kubectl label namespace \w+ ([\w-]+)=true", PAGE))
    assert len(labels) == 3 and all(label in str(of_kind("NetworkPolicy")) for label in labels)
