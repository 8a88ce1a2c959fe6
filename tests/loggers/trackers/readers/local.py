"""The embedded log: everything that was logged is in its lines and the files that they name."""

from __future__ import annotations

NAME, PACKAGE = "local", "dftrace_ai"

# Of a step logged again, odd numbers, hyper-parameters, histogram, picture, video, mesh.
STATED = ("each value", "as they are", "as they are", "as it is", "PNG, caption", "as it is", "GLB")

READER = """
def lines_of(paths):
    return [json.loads(line) for path in sorted(paths, key=os.path.getmtime) for line in path.read_text().splitlines()]

def read(lines):
    metrics = {}
    for line in lines:
        if line["k"] == "m":
            for name, value in line["v"].items():
                metrics.setdefault(name, []).append([line["s"], float(value)])
    (run, *_) = [line for line in lines if line["k"] == "run"]
    (*_, end) = [line for line in lines if line["k"] in ("run", "end")]
    return {
        "metrics": {key: six_kinds.by_step(pairs) for key, pairs in metrics.items()},
        "run": {key: run[key] for key in ("project", "name", "group", "tags")} | {"status": end.get("status")},
    }

folder = FOLDER / "runs" / "a project" / "kinds"
lines = lines_of(folder.glob("*.jsonl"))
kinds = read(lines)
(params,) = [line for line in lines if line["k"] == "p"]
kinds["params"] = params["v"]
(one,) = [line for line in lines if line["k"] == "h" and line["name"] == "acts"]
kinds["histogram"] = {"step": one["s"], "counts": one["counts"], "edges": one["edges"]}
files = {line["name"]: line for line in lines if line["k"] == "f"}
one = files["views/render"]
kinds["image"] = {"step": one["s"], "pixels": pixels(folder / one["file"]), "caption": one["caption"]}
for kind, name in (("video", "clip"), ("mesh", "shape")):
    one = files[name]
    kinds[kind] = {"step": one["s"], "sha": six_kinds.sha((folder / one["file"]).read_bytes())}
(text,) = [line for line in lines if line["k"] == "x"]
kinds["text"] = {"step": text["s"], "text": text["text"]}
(alert,) = [line for line in lines if line["k"] == "!"]
kinds["alert"] = [alert["title"], alert["text"], alert["level"]]
kinds["files"] = {}
for line in lines:
    if line["k"] == "a":
        root = folder / line["file"]
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file():
                part = path.relative_to(root.parent).as_posix()
                kinds["files"][part] = six_kinds.sha(path.read_bytes())
steps = FOLDER / "runs" / "a project" / "steps"
tell_found(kinds, [read(lines_of(steps.glob(f"rank{rank}-*.jsonl"))) for rank in (0, 1)])
"""
