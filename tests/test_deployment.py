"""The contents of `deploy/` and of the wheel, verified by the programs that read them."""

import ast
import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import requests
import yaml
from tests.cli.commands import serving
from tests.etcd import needs_etcd

import jumpmq
from jumpmq.cli.settings import SETTINGS
from jumpmq.http.resources.copy_families import families

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
WORST_EXPOSURE = 2.0
"""Score of 10 by `systemd-analyze security`; below 2 is its best rating, "OK"."""


def tool(name: str) -> str:
    """A program of this environment, or of the machine; the test is skipped without it."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def check(*command: str | Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("folder", [".", "traffic"])
def test_the_dockerfiles_pass_lint(folder: str) -> None:
    check(tool("hadolint"), DEPLOY / "docker" / folder / "Dockerfile")


@pytest.mark.parametrize("name", ["compose.yaml", "cluster.yaml"])
def test_the_compose_files_are_such(name: str) -> None:
    check(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "docker" / name)


@pytest.mark.parametrize("name", ["jumpmq.yaml", "etcd.yaml"])
def test_the_kubernetes_manifests_are_such(name: str) -> None:
    check(tool("kubernetes-validate"), "--strict", DEPLOY / "kubernetes" / name)


def test_prometheus_is_a_user_that_may_only_look() -> None:
    """The user of Prometheus reads metrics and not users, also if it existed, and with passwords that need escapes."""
    service = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())["services"]["users"]
    command = service["command"][0].replace("$$", "$")
    with jumpmq.running(default_user="admin", default_pass="a/b@c#d e") as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        admin, user = ("admin", "a/b@c#d e"), ("prometheus", "p'$%&")
        requests.put(f"{url}/api/queues/%2F/q", json={}, auth=admin, timeout=30).raise_for_status()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = {
            "PATH": path,
            "ADMIN_PASS": admin[1],
            "PROMETHEUS_PASS": user[1],
            "BROKER": url.removeprefix("http://"),
        }
        for _ in range(2):
            done = subprocess.run([*service["entrypoint"], command], env=given, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        found = requests.get(f"{url}/metrics/per-object", auth=user, timeout=30)
        assert 'queue="q"' in found.text
        assert requests.get(f"{url}/api/users", auth=user, timeout=30).status_code == 401
    config = yaml.safe_load((DEPLOY / "docker" / "prometheus.yaml").read_text())
    assert config["scrape_configs"][0]["basic_auth"]["username"] == "prometheus"
    assert config["rule_files"] == ["alerts.yaml"]


def test_alerts_are_rules_of_metrics_that_exist() -> None:
    rules = DEPLOY / "docker" / "alerts.yaml"
    named = re.findall(r"jumpmq_\w+", " ".join(re.findall("expr: (.*)", rules.read_text())))
    assert named and set(named) <= {family.name for family in families([])}
    check(tool("promtool"), "check", "rules", rules)


def _environment(file: Path, name: str) -> dict[str, str]:
    """The environment of a container of a manifest or compose file."""
    if file.parent.name == "docker":
        environment = yaml.safe_load(file.read_text())["services"][name]["environment"]
        return {name: str(value) for name, value in environment.items()}
    for document in yaml.safe_load_all(file.read_text()):
        if document["kind"] == "StatefulSet":
            [container] = document["spec"]["template"]["spec"]["containers"]
            if container["name"] == name:
                return {one["name"]: one.get("value", "") for one in container["env"]}
    raise AssertionError(f"no {name} in {file}")


@needs_etcd
@pytest.mark.parametrize("kind", ["docker", pytest.param("kubernetes", marks=pytest.mark.slow)])
def test_etcd_of_the_examples_is_closed(kind: str, tmp_path: Path) -> None:
    """The examples' etcd accepts a node with the certificate, and refuses a client without."""
    docker = kind == "docker"
    files = [DEPLOY / kind / name for name in (["cluster.yaml"] * 2 if docker else ["etcd.yaml", "jumpmq.yaml"])]
    names = ("etcd1", "node1") if docker else ("etcd", "jumpmq")
    etcd, node = (_environment(file, name) for file, name in zip(files, names, strict=True))
    check(DEPLOY / "etcd-certificates", tmp_path / "certificates", "etcd-0.etcd")
    check(DEPLOY / "etcd-certificates", tmp_path / "certificates", "etcd-0.etcd")  # is there already
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        client, peer = (f"https://127.0.0.1:{one.getsockname()[1]}" for one in (first, second))
    given = {name: value for name, value in etcd.items() if name.endswith(("_FILE", "_AUTH"))} | {
        "ETCD_NAME": "one",
        "ETCD_DATA_DIR": str(tmp_path / "data"),
        "ETCD_LISTEN_CLIENT_URLS": client,
        "ETCD_ADVERTISE_CLIENT_URLS": client,
        "ETCD_LISTEN_PEER_URLS": peer,
        "ETCD_INITIAL_ADVERTISE_PEER_URLS": peer,
        "ETCD_INITIAL_CLUSTER": f"one={peer}",
    }
    assert etcd["ETCD_LISTEN_CLIENT_URLS"].startswith("https://")
    assert etcd["ETCD_LISTEN_PEER_URLS"].startswith("https://")

    def here(value: str) -> str:
        if docker:
            return value.replace("/certificates/", f"{tmp_path}/certificates/")
        return value.replace("/etc/etcd/tls/", f"{tmp_path}/certificates/etcd/").replace(
            "/etc/jumpmq/etcd/", f"{tmp_path}/certificates/node/"
        )

    process = subprocess.Popen(
        ["etcd"], env={"PATH": os.environ["PATH"]} | {name: here(value) for name, value in given.items()},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        own: dict[str, Any] = {name: here(value) for name, value in node.items() if value.startswith("/")}
        assert own.keys() == {f"JUMPMQ_{name}" for name in ("ETCD_CA", "ETCD_CERT", "ETCD_KEY", "CLUSTER_SECRET_FILE")}
        with serving(tmp_path / "node", "--cluster", "jumpmq", "--etcd", client, **own):
            ca = str(tmp_path / "certificates" / "node" / "ca.crt")
            with pytest.raises(requests.exceptions.RequestException, match=r"(?i)certificate|ssl|reset|aborted"):
                requests.post(f"{client}/v3/kv/range", json={"key": "AA=="}, verify=ca, timeout=10).raise_for_status()
            own_certificate = own["JUMPMQ_ETCD_CERT"], own["JUMPMQ_ETCD_KEY"]
            key = base64.b64encode(b"/jumpmq/jumpmq/id").decode()
            found = requests.post(
                f"{client}/v3/kv/range", json={"key": key}, verify=ca, cert=own_certificate, timeout=10
            )
            assert base64.b64decode(found.json()["kvs"][0]["value"]).startswith(b"sealed1:")
    finally:
        process.kill()
        process.wait()


def test_only_nodes_and_members_reach_etcd() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "etcd.yaml").read_text()))
    [policy] = [one for one in documents if one["kind"] == "NetworkPolicy"]
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "etcd"}}
    sources = [
        source["podSelector"]["matchLabels"]["app"] for rule in policy["spec"]["ingress"] for source in rule["from"]
    ]
    assert sources == ["jumpmq", "etcd"]


def test_settings_of_deployments_are_the_brokers() -> None:
    """Environment variables in deployments are settings of the broker."""
    for file in DEPLOY.rglob("*.yaml"):
        for name in set(re.findall(r"JUMPMQ_([A-Z_]+)", file.read_text())) - {"PASS", "URL"}:
            assert name.lower() in SETTINGS, f"{file}: JUMPMQ_{name}"


def test_the_version_is_that_of_the_changelog_and_of_the_manifests() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\d[\d.]*) - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)[0] == jumpmq.__version__
    manifest = (DEPLOY / "kubernetes" / "jumpmq.yaml").read_text()
    assert set(re.findall(r"image: jumpmq:(\S+)", manifest)) == {jumpmq.__version__}


def test_each_entry_of_the_changelog_is_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert [line for line in lines if line.startswith(" ")] == []
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    ("schema", "file"), [("github-workflows", "workflows/ci.yml"), ("dependabot", "dependabot.yml")]
)
def test_what_the_forge_reads_is_right(schema: str, file: str) -> None:
    check(tool("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", ROOT / ".github" / file)


def test_release_notes_are_the_changelogs_section() -> None:
    notes = check(ROOT / "scripts" / "release-notes", f"v{jumpmq.__version__}")
    assert notes.strip()
    assert "\n## " not in notes
    unknown = subprocess.run([ROOT / "scripts" / "release-notes", "v0.0.9"], capture_output=True, text=True)
    assert (unknown.returncode, unknown.stdout) == (1, "")


def test_the_unit_is_right_and_exposes_little(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "jumpmq.service").read_text()
    installed = tmp_path / "jumpmq.service"
    installed.write_text(unit.replace("/opt/jumpmq/bin/jumpmq", "/bin/true").replace("man:jumpmq(1)", "man:true(1)"))
    assert check(tool("systemd-analyze"), "verify", "--man=no", installed) == ""
    exposure = check(tool("systemd-analyze"), "security", "--offline=yes", "--no-pager", installed)
    found = re.search(r"exposure level for jumpmq.service: (\S+)", exposure)
    assert found is not None
    assert float(found[1]) < WORST_EXPOSURE


def test_systemd_hears_when_the_broker_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(address))
        supervisor.settimeout(60)
        with serving(tmp_path / "data", NOTIFY_SOCKET=str(address)) as broker:
            assert supervisor.recv(100) == b"READY=1"
            broker.process.terminate()
            assert supervisor.recv(100) == b"STOPPING=1"
            broker.process.wait(60)


def test_the_first_user_may_be_another_than_guest(tmp_path: Path) -> None:
    with serving(tmp_path / "data", JUMPMQ_DEFAULT_USER="admin", JUMPMQ_DEFAULT_PASS="of our own") as broker:
        url = f"http://127.0.0.1:{broker.http_port}/api/whoami"
        assert requests.get(url, auth=("admin", "of our own")).json()["tags"] == ["administrator"]
        assert requests.get(url, auth=("guest", "guest")).status_code == 401
        broker.process.terminate()
        broker.process.wait(60)
    with serving(tmp_path / "data") as broker:
        url = f"http://127.0.0.1:{broker.http_port}/api/whoami"
        assert requests.get(url, auth=("guest", "guest")).status_code == 401, "only a new data directory has it"


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((DEPLOY / "docker" / "grafana" / "dashboards" / "jumpmq.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b(?:rabbitmq|jumpmq)_\w+", target["expr"])
    }
    with jumpmq.running() as broker:
        metrics = requests.get(f"{broker.http_url}/metrics/per-object").text
    there = set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))
    assert asked <= there


def pythons() -> list[Path]:
    """This Python, and an installed Python of every later version supported by the wheel."""
    found = [Path(sys.executable)]
    for minor in range(sys.version_info.minor + 1, 15):
        known = [*Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"), shutil.which(f"python3.{minor}")]
        found += [Path(one) for one in known if one is not None][:1]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("python", pythons(), ids=lambda path: path.resolve().name)
def test_the_wheel_serves_from_a_fresh_environment(tmp_path: Path, python: Path) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    if (ROOT / "build" / "src").exists():  # generated C sources; outdated ones are regenerated
        shutil.copytree(ROOT / "build" / "src", source / "build" / "src")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    fresh = tmp_path / "fresh" / "bin" / "python"
    check(python, "-m", "venv", tmp_path / "fresh")
    pip = [str(fresh), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    builder = [sys.executable, "-m", "build", "--no-isolation"]
    if python != Path(sys.executable):  # any other Python builds in a new environment
        check(python, "-m", "venv", tmp_path / "builder")
        builder = [str(tmp_path / "builder" / "bin" / "python"), "-m", "build"]
        check(builder[0], *pip[1:], "build")
    quick = os.environ | {"CFLAGS": "-O0"}  # its completeness matters here, not its speed
    subprocess.run(
        [*builder, "--wheel", "--outdir", tmp_path / "dist", source], check=True, capture_output=True, env=quick
    )
    (wheel,) = (tmp_path / "dist").glob("jumpmq-*.whl")
    check(*pip, wheel)
    names = ("amqp._kernel", "hashing._kernel", "queues._kernel", "queues._lanes", "store._worker")
    kernels = "import " + ", ".join(f"jumpmq.{name}" for name in names)
    check(fresh, "-I", "-c", kernels)
    jumpmq_of_it, data = str(fresh.parent / "jumpmq"), str(tmp_path / "data")
    assert check(jumpmq_of_it, "version").strip() == jumpmq.__version__
    serve = [jumpmq_of_it, "serve", "--port", "0", "--http-port", "0", "--data-dir", data]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            url = re.search(r"http://(\S+),", broker.stdout.readline())
            assert url is not None
            check(fresh.parent / "jumpmqctl", "--url", f"http://guest:guest@{url[1]}", "ping")
            page = requests.get(f"http://{url[1]}/", timeout=30).text
            for asset in re.findall(r'(?:href|src)="(/assets/[^"]+)"', page):
                requests.get(f"http://{url[1]}{asset}", timeout=30).raise_for_status()
            assert "/main.js" in page
        finally:
            broker.kill()


CHART = DEPLOY / "helm" / "jumpmq"
CLUSTER = {
    "nodes": 3,
    "workers": 2,
    "settings": {"memory-limit": "0.5"},
    "tls": {"certManager": {"enabled": True, "issuer": {"name": "letsencrypt"}}, "client": "optional"},
    "definitions": {"inline": "{}"},
    "serviceMonitor": {"enabled": True, "secret": "monitor"},
    "dashboard": {"enabled": True},
}
GIVEN = {
    "nodes": 5,
    "etcd": {"enabled": False, "urls": ["https://etcd:2379"], "existingSecret": "certificates"},
    "auth": {"existingSecret": "administrator"},
    "tls": {"existingSecret": "tls"},
    "definitions": {"configMap": "definitions"},
}


def rendered(values: dict[str, object]) -> list[dict[str, Any]]:
    """The chart's manifests for values, as rendered by Helm."""
    helm = pytest.importorskip("helm_python")
    files = helm.Chart.load(str(CHART)).render(values, name="orders", namespace="messages")
    documents = [one for file, text in files.items() if file.endswith(".yaml") for one in yaml.safe_load_all(text)]
    return [one for one in documents if one]


def test_the_chart_passes_lint() -> None:
    found = pytest.importorskip("helm_python").lint(str(CHART))
    assert found["errors"] == []
    assert [one["error"] for one in found["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("values", [{}, CLUSTER, GIVEN], ids=["one node", "cluster", "etcd is given"])
def test_what_the_chart_renders_is_right(values: dict[str, object], tmp_path: Path) -> None:
    documents = rendered(values)
    manifests = tmp_path / "manifests.yaml"
    own = [one for one in documents if one["apiVersion"].count(".k8s.io") or "." not in one["apiVersion"].split("/")[0]]
    manifests.write_text(yaml.safe_dump_all(own))
    check(tool("kubernetes-validate"), "--strict", manifests)
    assert {one["kind"] for one in documents if one not in own} <= {"Certificate", "ServiceMonitor"}
    names = {(one["kind"], one["metadata"]["name"]) for one in documents}
    given = set(re.findall(r"existingSecret': '(\w+)", str(values))) | {"definitions", "orders-jumpmq-tls"}
    for one in documents:
        assert one["metadata"]["name"].startswith("orders-jumpmq")
        for volume in one["spec"]["template"]["spec"].get("volumes", []) if one["kind"] == "StatefulSet" else []:
            secret = volume["secret"]["secretName"] if "secret" in volume else volume["configMap"]["name"]
            assert secret in given or ("Secret", secret) in names
    [broker] = [one for one in documents if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "orders-jumpmq"]
    assert broker["spec"]["replicas"] == values.get("nodes", 1)
    [container] = broker["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"jumpmq:{jumpmq.__version__}"
    settings = {one["name"].removeprefix("JUMPMQ_").lower() for one in container["env"] if "JUMPMQ" in one["name"]}
    assert settings <= set(SETTINGS)
    for there in ("cluster" in settings, "copies" in settings, "lifecycle" in container):
        assert there == (values.get("nodes", 1) != 1)
    if "copies" in settings:
        manifest = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "jumpmq.yaml").read_text()))[-1]
        [other] = manifest["spec"]["template"]["spec"]["containers"]
        assert container["lifecycle"] == other["lifecycle"]
        assert {"name": "JUMPMQ_COPIES", "value": "3"} in container["env"]


def test_a_pod_waits_until_no_queue_would_stop_without_it() -> None:
    """A pod's preStop command waits until no queue would stop, with a password that a URL has to escape."""
    manifest = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "jumpmq.yaml").read_text()))[-1]
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    *shell, script = container["lifecycle"]["preStop"]["exec"]["command"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "JUMPMQ_DEFAULT_USER": "admin", "JUMPMQ_DEFAULT_PASS": "a/b@c#d e"}
    with jumpmq.running(default_user="admin", default_pass="a/b@c#d e") as broker:
        here = script.replace("127.0.0.1:15672", f"127.0.0.1:{broker.http_port}")
        done = subprocess.run([*shell, here], env=given, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"nodes": 2}, "/nodes"),
        ({"node": 3}, "'node' not allowed"),
        ({"nodes": 3, "etcd": {"enabled": False}}, "a cluster needs an etcd"),
        ({"tls": {"certManager": {"enabled": True}}}, "missing property 'name'"),
        ({"serviceMonitor": {"enabled": True}}, "tag monitoring"),
    ],
)
def test_the_chart_refuses_values_that_cannot_work(values: dict[str, object], problem: str) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=problem):
        helm.Chart.load(str(CHART)).validate_schema(values)
        rendered(values)


def test_etcd_of_the_chart_takes_nodes_and_members_only() -> None:
    documents = rendered(CLUSTER)
    [policy] = [
        one for one in documents if (one["kind"], one["metadata"]["name"]) == ("NetworkPolicy", "orders-jumpmq-etcd")
    ]
    sources = [source["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for source in rule["from"]]
    assert {one["app.kubernetes.io/component"] for one in sources} == {"broker", "etcd"}
    [etcd] = [
        one for one in documents if (one["kind"], one["metadata"]["name"]) == ("StatefulSet", "orders-jumpmq-etcd")
    ]
    variables = {one["name"]: one.get("value") for one in etcd["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables["ETCD_CLIENT_CERT_AUTH"] == variables["ETCD_PEER_CLIENT_CERT_AUTH"] == "true"


KEDA = DEPLOY / "kubernetes" / "keda"


def test_the_scaler_for_rabbitmq_gets_what_it_asks_for() -> None:
    """KEDA's scaler for RabbitMQ gets its documented requests answered: over HTTP by name and pattern, and over
    AMQP.
    """
    _, scaled = yaml.safe_load_all((KEDA / "by-queues.yaml").read_text())
    pattern = scaled["spec"]["triggers"][0]["metadata"]["queueName"]
    with jumpmq.running() as broker, pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        for queue in ("orders-1", "orders-2", "stock"):
            channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for number in range(5):
            channel.basic_publish("", "orders-1", b"%d" % number)
        assert channel.queue_declare("orders-1", passive=True).method.message_count == 5
        one = requests.get(f"{broker.http_url}/api/queues/%2F/orders-1").json()
        assert (one["messages"], one["messages_unacknowledged"]) == (5, 0)
        assert one["message_stats"]["publish_details"]["rate"] >= 0
        asked = {"page": "1", "use_regex": "true", "pagination": "false", "name": pattern, "page_size": "100"}
        found = requests.get(f"{broker.http_url}/api/queues/%2F", params=asked).json()
        assert (found["filtered_count"], found["page"], found["page_count"]) == (2, 1, 1)
        assert {queue["name"]: queue["messages"] for queue in found["items"]} == {"orders-1": 5, "orders-2": 0}


def test_the_scaler_for_prometheus_asks_for_metrics_of_groups() -> None:
    [scaled] = yaml.safe_load_all((KEDA / "by-lag.yaml").read_text())
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    asked = set(re.findall(r"jumpmq_\w+", query)) | {"jumpmq_group_stream_lag_messages"}
    with jumpmq.running() as broker:
        metrics = requests.get(f"{broker.http_url}/metrics/per-object").text
    assert asked <= set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))


def test_what_is_imported_is_among_the_dependencies() -> None:
    """Imported packages are among the dependencies, except those of Spark, demo and tracing, which have extras."""
    names = {"google-re2": "re2", "argon2-cffi": "argon2", "pyjwt": "jwt"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cluster"]]
    known = [re.split(r"[\[><=]", one)[0] for one in wanted]
    allowed = {names.get(name, name.replace("-", "_")) for name in known}
    allowed |= {"jumpmq", "cryptography", "opentelemetry"}  # of pyjwt[crypto], and of an extra
    found = {
        (module.partition(".")[0], str(path.relative_to(ROOT)))
        for floor in ("amqp", "broker", "hashing", "http", "management", "nodes", "queues", "store", "topology")
        for path in (ROOT / "src" / "jumpmq" / floor).rglob("*.py")
        for module in _imported(ast.parse(path.read_text()))
    }
    assert not {one for one in found if one[0] not in allowed | sys.stdlib_module_names}


def _imported(node: ast.AST) -> Iterator[str]:
    """Modules imported by a program, except for types alone."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
    for child in ast.iter_child_nodes(node):
        yield from _imported(child)


def test_an_editable_install_compiles_nothing_again(tmp_path: Path) -> None:
    """An editable install compiles nothing after `scripts/install`: pip's part requires no compiler."""
    program = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    given = {"CC": "false", "JUMPMQ_KERNELS_BUILT": "1"}
    assert 'JUMPMQ_KERNELS_BUILT="1"' in (ROOT / "scripts" / "install").read_text()
    built = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=ROOT, env=os.environ | given, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    assert len(list(tmp_path.glob("jumpmq-*.whl"))) == 1
