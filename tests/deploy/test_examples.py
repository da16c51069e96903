"""What the examples say, held against the program they deploy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.settings import LEASE_MARGIN, Settings
from tests.deploy import examples, image
from tests.deploy.examples import INFRA, TIMEOUT_SECONDS

FILES = sorted(path for path in INFRA.rglob("*") if path.is_file())
# A process has this long to start and to end beside its one unit.
SPARE_SECONDS = 10
# The schedule of Kubernetes is looked at this often; a shorter time to start in would miss ticks.
SCHEDULER_SECONDS = 10
MINUTE = 60


def seconds(text: str) -> int:
    assert re.fullmatch(r"\d+s", text)
    return int(text[:-1])


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_setting_that_is_named_is_one(file: Path) -> None:
    named = set(re.findall(r"\bTALLYSTICK_[A-Z_]+\b", file.read_text()))
    assert named <= {f"TALLYSTICK_{name.upper()}" for name in Settings.model_fields}


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_the_timeout_an_example_reckons_with_is_the_default(file: Path) -> None:
    text = file.read_text()
    assert {float(found) for found in re.findall(r"TIMEOUT_SECONDS \((\d+)\)", text)} <= {
        TIMEOUT_SECONDS
    }
    assert not re.search(r"TALLYSTICK_(TIMEOUT|DEADLINE|LEASE)_SECONDS\b *[:=]", text)


def test_compose_waits_for_the_unit_in_hand_before_it_kills() -> None:
    grace = seconds(examples.compose()["services"]["loop"]["stop_grace_period"])
    assert grace >= TIMEOUT_SECONDS + SPARE_SECONDS


@pytest.mark.parametrize("path", [examples.TICK_SERVICE, examples.RUN_SERVICE])
def test_systemd_waits_for_the_unit_in_hand_before_it_kills(path: Path) -> None:
    service = examples.unit(path)["Service"]
    assert float(service["TimeoutStopSec"]) >= TIMEOUT_SECONDS + SPARE_SECONDS
    assert "TimeoutStartSec" not in service
    assert "RuntimeMaxSec" not in service


def test_kubernetes_waits_for_the_unit_in_hand_before_it_kills() -> None:
    (cron,) = examples.manifests("cronjob.yaml")
    job = examples.job_spec(cron)
    grace = job["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= TIMEOUT_SECONDS + SPARE_SECONDS
    assert job["activeDeadlineSeconds"] >= TIMEOUT_SECONDS + grace + SPARE_SECONDS
    (loop,) = examples.manifests("loop.yaml")
    assert examples.job_spec(loop)["template"]["spec"]["terminationGracePeriodSeconds"] == grace
    assert SCHEDULER_SECONDS < cron["spec"]["startingDeadlineSeconds"] < MINUTE


def test_a_kill_after_the_grace_finds_the_lease_still_held() -> None:
    lease = float(Settings.model_fields["lease_seconds"].default)
    assert lease >= TIMEOUT_SECONDS * LEASE_MARGIN
    grace = seconds(examples.compose()["services"]["loop"]["stop_grace_period"])
    assert grace < lease


def test_kubernetes_never_replaces_a_tick_at_work_and_never_repeats_one_by_itself() -> None:
    (cron,) = examples.manifests("cronjob.yaml")
    assert cron["spec"]["concurrencyPolicy"] in {"Forbid", "Allow"}
    job = examples.job_spec(cron)
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert cron["spec"]["schedule"] == "* * * * *"


def test_no_container_of_kubernetes_can_do_more_than_it_must() -> None:
    for name in examples.AT_WORK:
        for manifest in examples.manifests(name):
            pod = examples.job_spec(manifest)["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            # It would open the volume to a group, and a volume that is open is refused.
            assert "fsGroup" not in pod["securityContext"]
            assert pod["automountServiceAccountToken"] is False
            for container in examples.containers(manifest):
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }


def test_every_claim_secret_and_map_of_kubernetes_has_one_name_throughout() -> None:
    (claim,) = [
        each for each in examples.manifests("volume.yaml") if each["kind"] != "StorageClass"
    ]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for name in examples.AT_WORK:
        (manifest,) = examples.manifests(name)
        volumes = examples.job_spec(manifest)["template"]["spec"]["volumes"]
        claims = [
            each["persistentVolumeClaim"]["claimName"]
            for each in volumes
            if "persistentVolumeClaim" in each
        ]
        assert claims == [claim["metadata"]["name"]]
        for container in examples.containers(manifest):
            for variable in container["env"]:
                for reference in variable.get("valueFrom", {}).values():
                    assert reference["name"] == "tallystick"
                    assert reference["key"] == variable["name"]


def test_the_unit_waits_for_the_mount_it_writes_to() -> None:
    root = examples.environment_file()["TALLYSTICK_ARCHIVE_ROOT"]
    for path in (examples.TICK_SERVICE, examples.RUN_SERVICE):
        parsed = examples.unit(path)
        assert parsed["Unit"]["RequiresMountsFor"] == root
        assert parsed["Service"]["ReadWritePaths"] == root
        assert parsed["Service"]["ProtectSystem"] == "strict"
        assert parsed["Service"]["NoNewPrivileges"] == "yes"


def test_no_example_holds_a_secret() -> None:
    for name, service in examples.compose()["services"].items():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable:
                assert value.startswith("${"), (name, variable)
    assert examples.environment_file()["PGPASSWORD"] == ""
    for file in FILES:
        assert not re.search(r"://[^ /@]+:[^ /@]+@", file.read_text()), file


def test_compose_starts_the_loop_after_schema_and_volume_are_there() -> None:
    services = examples.compose()["services"]
    assert services["loop"]["depends_on"] == {
        name: {"condition": "service_completed_successfully"} for name in ("migrate", "volume")
    }
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in ("migrate", "volume", "loop"):
        build = services[name]["build"]
        place = (INFRA / "compose" / build["context"]).resolve()
        assert place / build["dockerfile"] == image.CONTAINERFILE
        # Process 1 of a container hears no signal it has no handler for, as while it starts.
        assert services[name]["init"] is True
