"""Secrets of a command line, of settings and of trackers' errors are in nothing that is kept or shown."""

from __future__ import annotations

import gzip
import json
import shlex
import signal
import stat
from pathlib import Path

import pytest
from conftest import RunScript

from dftrace_ai.masking import HIDDEN, masked_text, masked_values, masked_words
from safety.commands import invoke

# Where a $ stands is a secret; all else stays as it is.
LINES = [
    "train.py --wandb-key $ --lr 0.1 --wandb-key=$ --api_key $ --apiKey $ --apikey $ -key $",
    "--hf-token $ --HF_TOKEN $ --token=$ --auth $ --auth-token:$ --openai.api-key $ --token $ --lr 1",
    "--password $ --db.passwd=$ --client_secret $ --credentials $ --db-pwd $ --mysql-password2 $",
    "--aws-secret-access-key $ AWS_ACCESS_KEY_ID=$ WANDB_API_KEY=$ key=$ --secret-value $ --keys a",
    "api_key: $ 'api_key: $' +a.b.api_key=$ ++wandb.key=$ --env=WANDB_API_KEY=$ -eHF_TOKEN=$",
    "postgres://user:$@host/db https://$@host/x --url=https://h/p?x=1&api_key=$&y=2 redis://:$@h:1",
    "-H 'Authorization: $' -H 'X-Api-Key: $' --header=Authorization:$ 'Bearer $' --h 'bearer $'",
    """--config '{"api_key": "$", "lr": 1}' --config "{'token': '$', 'b': 2}" """,
    r"""-c 'os.environ["WANDB_API_KEY"] = "$"' --json '{\"password\":\"$\"}' 'a.token=$'""",
    "PGPASSWORD=$ --dbpassword $ SSHPASS=$ --jwt $ --cookie $ --cookies=$ --mypasswd=$ --cookiecutter a",
    "https://$@h/x https://hooks.slack.com/services/$ --w=https://discord.com/api/webhooks/$ --sig 1",
    "https://s/c?sv=1&sig=$&se=2 'https://b/k?X-Amz-Signature=$' https://b/k?signal=1&design=2",
    "'https://b/k?Expires=1&Signature=$&Key-Pair=2' HTTPS://HOOKS.SLACK.COM/triggers/$ --signature=2",
    "https://discord.com/api/v10/webhooks/$ https://t.webhook.office.com/webhookb2/$ Discord.com/api/v10",
    "--sas '?sv=2020&sig=$' --bearer $ --bearers 2 'sv=1&se=2&sig=$' npm_config=1 pypi-url AIza",
    "sshpass -p $ ssh -p 22 me@host | sshpass -p$ scp x host: ; sshpass -e ssh -p 22 -u a:b",
    "/usr/bin/curl -s -u me:$ http://h:80 --user me:$ -u me && train.py --user me:x -u a:b -p 5",
    "'curl -s -u me:$ http://h:80; sshpass -p $ ssh -p 22 h' 'curl is what -p x and --user me know'",
    "DB_PASS=$ --smtp-pass $ --wandbkey $ --hftoken=$ --pass 2 --forward-pass x --per-pass=3",
    "--pass $ --pass=$ PASS=$ -pass $ --pw $ --otp=$ --pat $ --secretid $ --role-secretid=$",
    "--pass 2 --pass=3 --pass forward PASS=1 --file-pat x --cls-pw=0.5 --pattern y --otps 5",
    "--tokenizer bert --tokens 5 --max-tokens 5 --key-frames 5 --keys a --monkey b --keyboard c",
    "--sort-key loss --image_key jpg --pad-token x --cls_token=y --eos-token-id 5 --authors me",
    "--password-file /p --token_path=/t --key-file k --credentials-dir d --secret-name n",
    "--no-auth train.py --use-auth-token True --token --lr 1 --key=none --secretary s --k 5",
    "ssh://git@host/x git@host:x/y http://auth:8080/x user@host /data/key/a.txt token key",
    "a=b,c=d monkey=1 tokenizer.name=x key.frames=5 'loss: 1' --lr=0.1 -k 5 x:y --seed 1",
]

# How what services give out begins, and how many letters follow; then what is none.
ISSUED = [
    *(("sk-ant-", 24), ("hf_", 34), ("ghp_", 36), ("github_pat_", 40), ("glpat-", 20)),
    *(("xoxb-", 24), ("AKIA", 16), ("AIza", 35), ("npm_", 36), ("pypi-", 80), ("sk_live_", 24)),
]
NOT_ISSUED = ["npm_config_cache", "pypi-mirror.example.org", "AIzawa", "sk_test_split", "hf_hub"]


def test_what_services_give_out_is_known_without_a_name() -> None:
    for begins, letters in ISSUED:
        token = begins + "A" * letters
        assert masked_words(["a.py", token, f"x {token}."]) == ["a.py", HIDDEN, f"x {HIDDEN}."]
    assert masked_words(NOT_ISSUED) == NOT_ISSUED


PROGRAM = """
import pathlib, sys
from dftrace_ai import ai, tracing
from dftrace_ai.loggers import make_loggers
here = pathlib.Path(__file__).parent
(here / "leaky.py").write_text('''
from dftrace_ai.loggers import BaseLogint

class Leaky(BaseLogint):
    name = "leaky"

    def open(self):
        print("GET https://h/?api_key=hunter2a", flush=True)
        print("Authorization: Bearer hunter2b", end="", flush=True)

    def log_metrics(self, metrics, step):
        raise RuntimeError("401 for https://u:hunter2c@h/?token=hunter2d: Bearer hunter2e")

    def log_file(self, name, data, suffix, step):
        pass
''')
sys.path.insert(0, str(here))
import leaky
config = {"log_dir": "out/runs", "project": "p", "run_name": "r", "system_metrics_s": None}
config |= {"loggers": ["metric", "hparams"], "status_line": False, **eval(sys.argv[1])}
with tracing(), make_loggers(
    {name: {"config": config} for name in ("local", "trace", "leaky")}
) as loggers, ai.compute.forward:
    wandb = {"key": "hunter2f", "tokenizer": "bert", "url": "https://u:hunter2g@h"}
    loggers.log_iter({"loss": 1.0, "hparams": {"wandb": wandb, "lr": 0.5}})
    loggers.log_hyperparams({"api_key": "hunter2h", "argv": sys.argv[2:], "key": 5})
"""
ARGUMENTS = ["--wandb-key", "hunter2i", "--password=hunter2j", "--tokenizer", "bert"]
SECRETS = [f"hunter2{letter}" for letter in "abcdefghij"]


def texts_below(folder: Path) -> dict[Path, str]:
    """What every file holds, unpacked."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            found[path] = data.decode("utf-8", "replace")
    return found


@pytest.mark.parametrize("line", LINES)
def test_secrets_of_a_command_line_are_left_out_and_nothing_else(line: str) -> None:
    words = shlex.split(line.replace("$", "hunter2-is.long"))
    masked = masked_words(words)

    assert masked == shlex.split(line.replace("$", HIDDEN))
    assert masked_words(masked) == masked


def test_secrets_of_an_error_are_left_out() -> None:
    given = (
        "401 for url https://me:pw@host/?api_key=abc&run=7 'Authorization': 'Basic YWJj' "
        "x-token: Bearer a.b.c {'password': 'a b', 'lr': 1} KeyError: 'loss' "
        "hf_aaaaaaaaaaaaaaaaaaaa sk-aaaaaaaaaaaaaaaaaaaa bearer of news"
    )
    assert masked_text(given) == (
        "401 for url https://me:***@host/?api_key=***&run=7 'Authorization': '***' "
        "x-token: *** {'password': '***', 'lr': 1} KeyError: 'loss' *** *** bearer of news"
    )
    assert masked_text("http://abc:@h https://abc:x-oauth-basic@h") == "http://***@h https://***@h"
    assert masked_text("token: '" * 10_000 + "a=" * 10_000 + "://" * 10_000).count(HIDDEN)
    assert masked_text("curl -u " * 5_000 + "sshpass -p " * 5_000).count(HIDDEN)


def test_no_text_is_looked_through_again_and_again() -> None:
    token = "eyJ" + "A" * 20
    for text in (f"{token}.{token}.AB", f"my-{token}.{token}.AB", f"a-{token}.{token}-.AB-"):
        assert masked_text(text).count(HIDDEN) == 1
        assert token not in masked_text(text)
    assert masked_text("auth:8080/x?token=abc auth:80") == f"auth:8080/x?token={HIDDEN} auth:80"

    def end(*_: object) -> None:
        raise AssertionError("it takes minutes")

    # Of the processor, and many times what is needed.
    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, 10.0)
    try:
        for begin in ("eyJaaaaaaaa-", "eyJaaaaaaaa.eyJa-", "token:1/", "pypi-", "?sig=&"):
            masked_text(begin * (400_000 // len(begin)))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def test_secrets_among_settings_are_left_out() -> None:
    given = {
        "lr": 0.1,
        "token": "abc",
        "key": 5,
        "use_auth_token": True,
        "pad_token": "<pad>",
        "command": ["train.py", "--api-key", "abc"],
        "wandb": {"api_key": "abc", "mode": "online"},
        "secrets": {"a": "abc", "b": ["abc", "def"]},
        "attention": {"key": {"init": "zeros"}},
        "note": "key: value",
    }
    assert masked_values(given) == given | {
        "token": HIDDEN,
        "command": ["train.py", "--api-key", HIDDEN],
        "wandb": {"api_key": HIDDEN, "mode": "online"},
        "secrets": {"a": HIDDEN, "b": [HIDDEN, HIDDEN]},
    }


def test_nothing_that_a_run_leaves_holds_a_secret(run_script: RunScript, tmp_path: Path) -> None:
    done = run_script(PROGRAM, args=["{}", *ARGUMENTS])
    folder = done.folder
    page, runs_page = tmp_path / "report.html", tmp_path / "runs.html"
    shown = [
        done.stderr,
        invoke("report", str(folder), "-o", str(page)).out,
        invoke("info", "--json", str(folder)).out,
        invoke("runs", str(folder / "runs"), "--json").out,
        invoke("runs", str(folder / "runs"), "--to", "html", "--out", str(runs_page)).out,
        *(page.read_text(), runs_page.read_text()),
        *texts_below(folder).values(),
    ]
    for text in shown:
        assert [secret for secret in SECRETS if secret in text] == []
    assert "bert" in page.read_text()
    assert "401 for https://u:***@h/?token=*** Bearer ***" in done.stderr
    (run,) = json.loads(shown[3])["runs"]
    assert run["params"] == {
        "wandb/key": HIDDEN,
        "wandb/tokenizer": "bert",
        "wandb/url": "https://u:***@h",
        "lr": 0.5,
        "api_key": HIDDEN,
        "argv": ["--wandb-key", HIDDEN, "--password=***", "--tokenizer", "bert"],
        "key": 5,
    }
    printed = (folder / "runs/p/r/output.log").read_text()
    assert printed == "GET https://h/?api_key=***\nAuthorization: ***"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in texts_below(folder / "runs")}
    assert modes == {0o600}


def test_whoever_wants_it_all_has_it_all_and_lets_others_read_it(run_script: RunScript) -> None:
    settings = "{'mask_secrets': False, 'file_mode': '0644'}"
    done = run_script(PROGRAM, args=[settings, *ARGUMENTS], env={"DFTRACE_MASK_SECRETS": "false"})
    texts = texts_below(done.folder)
    (log,) = (text for path, text in texts.items() if path.suffix == ".jsonl")
    (trace,) = (text for path, text in texts.items() if path.suffix == ".gz")
    assert [secret for secret in SECRETS[5:] if secret not in log or secret not in trace] == []
    # A tracker's complaints are nobody's settings.
    assert not any(secret in done.stderr for secret in SECRETS)
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in texts}
    assert (modes[".jsonl"], modes[".log"]) == (0o644, 0o600)
