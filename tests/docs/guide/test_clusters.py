"""The page on clusters: its script and manifest, run as far as that goes without a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from conftest import clean_environment
from live.programs import until
from safety.commands import answer

from docs.pages import DOCS

PAGE = DOCS / "guide" / "clusters.md"
SCRIPT = DOCS / "cluster" / "train.sbatch"
MANIFEST = DOCS / "cluster" / "training.yaml"
JUDGING = DOCS / "cluster" / "judging.yaml"

# Times are given, so that nothing hangs on how busy the machine is.
TRAIN = """
import os, sys
import dftrace_ai
from dftrace_ai.run.emitting import complete, time_us

assert sys.argv[1:] == WORDS
with dftrace_ai.tracing():
    begin = time_us()
    for step in range(40):
        complete("forward", begin + step * 10_000 + 100, 9_000, category="compute")
        complete("step", begin + step * 10_000, 9_900, category="pipeline")
sys.exit(3 if os.environ["RANK"] == "1" else 0)
"""
# What a cluster has: two nodes, on each of which torchrun starts a rank.
PROGRAMS = {
    "srun": """
        words=("$@"); [[ $1 == --ntasks* ]] && words=("${@:2}")
        export SLURM_STEP_ID=0 SLURM_NTASKS=2; status=0
        for node in 0 1; do
          SLURM_PROCID=$node SLURM_NODEID=$node SLURM_LOCALID=0 "${words[@]}" & pids[$node]=$!
        done
        for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
        exit "$status"
    """,
    "scontrol": "echo node0; echo node1",
    "torchrun": """
        node=${SLURM_NODEID:-$JOB_COMPLETION_INDEX}
        for word; do
          shift
          case $word in
            --rdzv-id=*) export TORCHELASTIC_RUN_ID=${word#*=} ;;
            --rdzv-endpoint=*) [[ ${word#*=} =~ ^[a-z0-9.-]+:29500$ ]] || exit 9 ;;
            train.py) break ;;
          esac
        done
        export RANK=$node WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
        exec python train.py "$@"
    """,
    # Beside the tests others may have the port.
    "dftrace": """
        if [ "$1" = top ]; then echo "$@" > "$OUT/$$" && exec mv "$OUT/$$" "$OUT/top"; fi
        exec python -m dftrace_ai.cli "$@"
    """,
}


def cluster(folder: Path, words: list[str], **environ: str) -> dict[str, str]:
    """The environment in which programs stand in for those of a cluster."""
    (folder / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}")
        (folder / "bin" / name).chmod(0o755)
    (folder / "train.py").write_text(TRAIN.replace("WORDS", repr(words)))
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**clean_environment(), "PATH": path, **environ}


def judged(out: Path) -> None:
    """The ranks of both nodes are those of one run."""
    facts = answer("info", out)
    assert facts["runs"] == 1
    assert sorted((one["rank"], one["world_size"]) for one in facts["files"]) == [(0, 2), (1, 2)]


def test_the_script_of_slurm_records_one_run_and_ends_as_the_training(tmp_path: Path) -> None:
    environ = cluster(
        tmp_path,
        ["--lr", "0.1"],
        SLURM_JOB_ID="4711",
        SLURM_JOB_NODELIST="node[0-1]",
        SLURM_JOB_NUM_NODES="2",
    )
    line = ["bash", str(SCRIPT), "--lr", "0.1"]
    done = subprocess.run(
        line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 3, done.stderr
    out = tmp_path / "traces" / "4711"
    judged(out)
    assert {one["job_id"] for one in answer("info", out)["files"]} == {"4711"}
    assert "39 steady steps of 40, by step spans, shown of rank" in (out / "why.txt").read_text()


def test_pods_of_the_manifest_record_one_run(tmp_path: Path) -> None:
    first, *_ = (one for one in manifests() if one["kind"] == "Job")
    (container,) = first["spec"]["template"]["spec"]["containers"]
    out = tmp_path / "out"
    out.mkdir()
    given = {one["name"]: one["value"] for one in container["env"]}
    pods = []
    environ = cluster(tmp_path, [], **{**given, "OUT": str(out), "KUBERNETES_SERVICE_HOST": "k"})
    for index in ("0", "1"):
        line = [*container["command"], *container["args"]]
        pods.append(
            subprocess.Popen(line, cwd=tmp_path, env={**environ, "JOB_COMPLETION_INDEX": index})
        )
    assert [pod.wait(300) for pod in pods] == [0, 3]
    judged(out)
    assert {one["job_id"] for one in answer("info", out)["files"]} == {"training"}
    port = container["ports"][0]["containerPort"]
    # Nobody has waited for it.
    until(lambda: (out / "top").exists(), bool)
    assert (out / "top").read_text() == f"top {out} --prometheus 0.0.0.0:{port}\n"
    assert first["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port)


def manifests() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))]


def test_what_the_manifest_names_is_in_it() -> None:
    # kubectl begins all of a file at once: what comes afterwards is in another.
    service, training = manifests()
    judging = yaml.safe_load(JUDGING.read_text(encoding="utf-8"))
    pod = training["spec"]["template"]["spec"]
    name = training["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert f"{name}-0.{pod['subdomain']}:" in pod["containers"][0]["args"][0]
    for one in (training, judging):
        spec = one["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    (asked,) = re.findall(
        r"^\$ kubectl exec (\S+) ", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    # A pod of an indexed Job has characters behind its number that nobody knows before.
    assert asked == f"job/{name}"


def test_the_page_shows_the_files() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"<!-- file: ([\w./]+) -->\n\n```\w+\n(.*?)```", text, re.DOTALL)
    assert {name: block for name, block in shown} == {
        "cluster/train.sbatch": SCRIPT.read_text(encoding="utf-8"),
        "cluster/training.yaml": MANIFEST.read_text(encoding="utf-8"),
        "cluster/judging.yaml": JUDGING.read_text(encoding="utf-8"),
    }
