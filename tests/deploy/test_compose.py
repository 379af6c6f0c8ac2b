"""deploy/compose.yaml keeps to the Compose specification, and says what services, proxy and settings understand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from registry.signing.signatures import load_signer, read_trusted
from serving.settings import PREFIX
from tests.deploy.stack import (
    DEPLOY,
    SYSTEMS,
    VARIABLE,
    check_settings,
    compose,
    compose_text,
    example,
    file_of,
    known_to_flows,
    nginx_text,
    services,
)
from tests.fixtures.places import ROOT

SCHEMA = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
ONE_OFF = ("setup", "keys")
NAMES = list(services())
LASTING = [name for name in NAMES if name not in ONE_OFF]


def errors(document):
    schema = json.loads(file_of("check-jsonschema", SCHEMA).read_text(encoding="utf-8"))
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


def test_the_file_keeps_to_the_published_schema_of_the_compose_specification():
    assert errors(compose()) == []


def test_a_field_that_the_specification_does_not_have_is_an_error():
    service = {**services()["proxy"], "read_onyl": True}
    assert len(errors({"services": {"proxy": service}})) == 1


def test_every_service_that_the_stack_needs_is_there():
    assert {"postgres", "mlflow", "prefect-server", "worker", "notify", "prometheus", "grafana", "proxy"} < set(NAMES)
    assert set(SYSTEMS) < set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_service_has_no_more_rights_than_it_needs(name):
    service = services()[name]
    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service and "network_mode" not in service and "pid" not in service


@pytest.mark.parametrize("name", NAMES)
def test_a_service_has_limits_and_its_log_is_rotated(name):
    service = services()[name]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}


@pytest.mark.parametrize("name", LASTING)
def test_what_lasts_is_watched_and_started_again(name):
    service = services()[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", NAMES)
def test_nobody_waits_for_the_health_of_what_has_none(name):
    for needed, how in services()[name].get("depends_on", {}).items():
        expected = "service_completed_successfully" if needed in ONE_OFF else "service_healthy"
        assert how["condition"] == expected


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_of_one_version(name):
    image = services()[name]["image"]
    tag = image.rpartition(":")[2]
    assert re.search(r"\d+\.\d+", tag), image
    assert image.startswith("pliant-") == (f":{example()['IMAGE_TAG']}" in image)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "proxy"])
def test_only_the_proxy_has_ports_on_the_machine(name):
    assert "ports" not in services()[name]


def test_the_operators_door_is_open_on_this_machine_alone():
    clients, operators = services()["proxy"]["ports"]
    assert clients == "8443:8443"
    assert operators == "127.0.0.1:8444:8444"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("proxy", "notify")])
def test_what_needs_nothing_from_outside_has_no_way_there(name):
    for network in services()[name]["networks"]:
        assert compose()["networks"][network] == {"internal": True}


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_endpoint_reaches_neither_the_database_nor_all_of_prefect(system):
    networks = set(services()[system]["networks"])
    assert not networks & {*services()["postgres"]["networks"], *services()["prefect-server"]["networks"]}


@pytest.mark.parametrize("name", NAMES)
def test_all_that_a_service_mounts_is_there(name):
    for volume in services()[name].get("volumes", ()):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (DEPLOY / source).exists() or source == "./monitoring/grafana/dashboards", source
            assert volume.endswith(":ro")
        else:
            assert source in compose()["volumes"]
    assert set(services()[name].get("secrets", ())) <= set(compose()["secrets"])


def test_every_volume_and_every_secret_is_used():
    mounted = {volume.split(":")[0] for service in services().values() for volume in service.get("volumes", ())}
    used = {secret for service in services().values() for secret in service.get("secrets", ())}
    assert set(compose()["volumes"]) <= mounted
    assert set(compose()["secrets"]) == used


def test_secrets_are_files_that_git_does_not_have():
    for secret in compose()["secrets"].values():
        assert secret["file"].startswith("./secrets/")
    assert "secrets/" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()
    assert ".env" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_stands_in_the_file(name):
    for variable, value in services()[name].get("environment", {}).items():
        if re.search(r"(^|_)(PASSWORD|SECRET|TOKEN|KEY|AUTH)(_|$)", variable) and not (
            variable.endswith(("_FILE", "INITDB_ARGS")) or value.startswith("/")  # the path of one
        ):
            pytest.fail(f"{name} has {variable}")
        assert not re.search(r"://[^/@\s]*:[^/@\s]*@", value), f"{name}: {variable} holds a password"


def test_every_variable_of_the_file_is_explained_and_every_explained_one_is_used():
    used = {match[1] for match in VARIABLE.finditer(compose_text())}
    assert used == set(example())


def test_the_profiles_of_the_example_are_the_endpoints():
    profiles = {profile for service in services().values() for profile in service.get("profiles", ())}
    assert set(example()["COMPOSE_PROFILES"].split(",")) == set(SYSTEMS)
    assert profiles == {*SYSTEMS, "tools"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_service_accepts_the_variables_that_it_is_given(system):
    settings = check_settings(system, services()[system]["environment"])
    assert settings.registry_uri == services()["worker"]["environment"]["MLFLOW_TRACKING_URI"]
    assert settings.allowed_hosts == system  # the Host that the proxy and Prometheus send
    assert settings.threads == 1
    assert settings.log_format == "json"


@pytest.mark.parametrize("name", ["setup", "keys", "worker", "notify"])
def test_flows_are_given_only_variables_that_they_read(name):
    ours = {variable for variable in services()[name]["environment"] if variable.startswith(PREFIX)}
    assert ours <= known_to_flows()


def test_no_other_service_is_given_a_variable_of_pliant():
    ours = {"setup", "keys", "worker", "notify", *SYSTEMS}
    text = json.dumps([service for name, service in services().items() if name not in ours])
    assert PREFIX not in text


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_endpoint_writes_its_own_state_alone_and_the_worker_finds_it_as_the_same_user(system):
    endpoint, worker = services()[system], services()["worker"]
    assert endpoint["user"] == worker["user"]
    home = endpoint["environment"]["PLIANT_HOME"]
    written = {volume for volume in endpoint["volumes"] if not volume.endswith(":ro")}
    assert written == {f"state-{system}:{home}", f"scratch-{system}:/var/tmp"}
    place = f"{home}/services/{system}"
    assert f"state-{system}:{place}" in worker["volumes"] and f"state:{home}" in worker["volumes"]


def test_what_is_published_is_signed_and_nothing_else_is_served():
    worker = services()["worker"]
    key, trusted = worker["environment"]["PLIANT_SIGNING_KEY"], worker["environment"]["PLIANT_TRUSTED_KEYS"]
    folder = key.rpartition("/")[0]
    assert f"signing:{folder}:ro" in worker["volumes"] and f"trusted:{trusted}:ro" in worker["volumes"]
    holders = [name for name in NAMES if any(v.startswith("signing:") for v in services()[name].get("volumes", ()))]
    assert holders == ["setup", "worker"]
    for system in SYSTEMS:
        place = services()[system]["environment"]["PLIANT_TRUSTED_KEYS"]
        assert f"trusted:{place}:ro" in services()[system]["volumes"]


def test_the_set_up_makes_a_pair_of_keys_once_and_lets_the_public_half_be_trusted(tmp_path):
    (command,) = services()["setup"]["command"]
    code = "import sys; from cli.main import main; sys.exit(main())"
    making = command.partition("; exec")[0].replace("pliant sign", f"{sys.executable} -c '{code}' sign")
    kept = set()
    for _ in range(2):
        for name in ("signing", "trusted"):
            (tmp_path / name).mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(["sh", "-ec", making], cwd=tmp_path, env=environment, check=True, capture_output=True)
        signer = load_signer(tmp_path / "signing" / "release.pem")
        assert list(read_trusted(tmp_path / "trusted")) == [signer.id]
        kept.add(signer.id)
    assert len(kept) == 1


def test_keys_are_written_by_the_command_and_the_set_up_alone():
    place = "keys:/opt/pliant/keys"
    writers = [name for name in NAMES if place in services()[name].get("volumes", ())]
    assert writers == ["setup", "keys"]
    for system in SYSTEMS:
        assert "keys:/keys:ro" in services()[system]["volumes"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_ports_agree(system):
    service = services()[system]
    port = service["command"][service["command"].index("--port") + 1]
    assert f"127.0.0.1:{port}/readyz" in service["healthcheck"]["test"][-1]
    assert f"set $upstream {system}:{port};" in nginx_text()
    assert f'["{system}:{port}"], labels: {{system: {system}}}' in (DEPLOY / "targets.yaml").read_text(encoding="utf-8")


def test_addresses_inside_are_those_of_services():
    for name in NAMES:
        for value in services()[name].get("environment", {}).values():
            for host in re.findall(r"://(?:\w+@)?([\w.-]+)", value):
                assert host in (*NAMES, "grafana.localhost", "mlflow.localhost", "prefect.localhost"), (
                    f"{name}: {value}"
                )


def test_prometheus_reads_metrics_with_a_key():
    text = (DEPLOY / "monitoring" / "prometheus.yaml").read_text(encoding="utf-8")
    assert "#key authorization: {credentials_file: monitor.key}" in text  # what the service's `sed` switches on
    assert "file_sd_configs: [{files: [targets.yaml]}]" in text
    command = services()["prometheus"]["command"][0]
    assert "sed 's/#key //'" in command and "ln -sf /run/secrets/monitor_key monitor.key" in command


@pytest.mark.parametrize(
    ("profiles", "read"),
    [("tokens,bins", ["tokens", "bins"]), (",".join(SYSTEMS), list(SYSTEMS)), ("other", list(SYSTEMS))],
)
def test_prometheus_reads_the_endpoints_that_run_and_all_where_it_knows_none_of_them(tmp_path, profiles, read):
    command = services()["prometheus"]["command"][0].replace("$$", "$").replace("/etc/monitoring", str(DEPLOY))
    filtering = command[command.index("{ grep") : command.index(" && ln -sf")]
    environment = {**os.environ, "ENDPOINTS": profiles}
    subprocess.run(["sh", "-ec", filtering], cwd=tmp_path, env=environment, check=True)
    written = (tmp_path / "targets.yaml").read_text(encoding="utf-8")
    assert re.findall(r"system: (\w+)", written) == read


def test_what_may_take_most_cpus_can_be_bounded_on_a_small_machine():
    # Docker refuses to start what may take more than there are.
    for name, service in services().items():
        cpus = float(service["deploy"]["resources"]["limits"]["cpus"])
        assert cpus <= 2 or cpus == float(example()["CPUS"]), name


def test_grafana_is_given_what_its_provisioning_asks_for():
    folder = DEPLOY / "monitoring" / "grafana" / "provisioning"
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.yaml")]
    asked_for = {name for text in texts for name in re.findall(r"\$\{(\w+)\}", text)}
    assert asked_for <= set(services()["grafana"]["environment"])


def test_prefect_copies_its_page_to_where_it_may_write():
    server = services()["prefect-server"]
    folder = server["environment"]["PREFECT_SERVER_UI_STATIC_DIRECTORY"]
    assert any(folder.startswith(f"{place.split(':')[0]}/") for place in server["tmpfs"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_caches_lie_where_an_endpoint_may_write(system):
    service = services()[system]
    places = [volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")]
    for name in ("HOME", "TMPDIR", "BENTOML_HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "PLIANT_HOME"):
        assert any(service["environment"][name].startswith(place) for place in places), name
