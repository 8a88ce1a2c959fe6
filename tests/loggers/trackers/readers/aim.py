"""Aim, with a repository beside the runs: everything that was logged is told by `aim.Repo`."""

from __future__ import annotations

import logging
from typing import Any

NAME, PACKAGE = "aim", "aim"

# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = (
    "the later",
    "as they are",
    "as they are",
    "in bins of one width; edges as a text",
    "PNG, caption",
    "GIF; others as files",
    "as a file",
)

READER = """
import aim
from aim.sdk.index_manager import RepoIndexManager
from aim.storage.context import Context

C = Context({})

repo = aim.Repo(str(FOLDER / "runs"))
# As `aim up` does it: who only reads sees what is indexed.
index = RepoIndexManager.get_index_manager(repo)
for one in repo.list_all_runs():
    index.index(one)

def read(id):
    run = repo.get_run(id)
    found = {"id": id, "metrics": {}}
    for metric in run.metrics():
        steps, (values, *_) = metric.data.items_list()
        found["metrics"][metric.name] = six_kinds.by_step([[int(s), float(v)] for s, v in zip(steps, values)])
    found["run"] = {"project": run.experiment, "name": run.name, "group": run["group"], "tags": sorted(run.tags), "status": run["status"]}
    return found, run

found = sorted(map(read, repo.list_all_runs()), key=lambda pair: pair[0]["run"]["name"])
(kinds, run), *steps = found

def one_of(sequence):
    steps, values = sequence.values.sparse_list()
    ((step, value),) = zip(steps, values)
    return int(step), value[0] if isinstance(value, list) else value

kinds["params"] = run["hparams"]
step, distribution = one_of(run.get_distribution_sequence("acts", C))
_, edges = one_of(run.get_text_sequence("acts/edges", C))
kinds["histogram"] = {"step": step, "counts": distribution.weights.tolist(), "edges": json.loads(edges.data)}
kinds["range"] = distribution.range
step, image = one_of(run.get_image_sequence("views/render", C))
kinds["image"] = {"step": step, "pixels": numpy.array(image.to_pil_image()).tolist(), "caption": image.caption}
step, clip = one_of(run.get_image_sequence("clip", C))
kinds["video"] = {"step": step, "sha": six_kinds.sha(clip.storage["data"].load())}
step, text = one_of(run.get_text_sequence("notes/said", C))
kinds["text"] = {"step": step, "text": text.data}
downloads = FOLDER / "downloads of aim"
downloads.mkdir()
files = {name: Path(one.download(str(downloads))) for name, one in run.artifacts.items()}
shas = {name: six_kinds.sha(path.read_bytes()) for name, path in files.items()}
kinds["mesh"] = {"step": 3, "sha": shas.pop("shape/000000003.glb")}
kinds["files"] = shas
_, record = one_of(run.get_log_records())
title, _, text = record.message.partition(": ")
kinds["alert"] = [title, text, record.level]
tell_found(kinds, [pair[0] for pair in steps])
"""


def as_kept(expected: dict[str, Any]) -> None:
    expected["alert"][2] = logging.WARNING
