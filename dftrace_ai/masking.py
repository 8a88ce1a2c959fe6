"""Secrets in command lines, hyper-parameters and errors: what looks like one is not kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "***"

WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Words of a name. Those say it wherever they stand, but where the last is about something else.
# A program's own, as PGPASSWORD and sshpass, are one word.
ALWAYS = re.compile(r"[a-z]*passw(?:or)?ds?|passphrase|pwd|secrets?|secretid|credentials?|creds")
ABOUT = re.compile(r"file|path|dir|directory|folder|name|env|var|length|len|type|policy|url")
# These say it at the end, but behind one that tells of which of many keys or tokens they are.
AT_END = re.compile(
    r"key|token|auth|authorization|bearer|pass|sshpass|jwt|cookies?"
    r"|(api|access|secret|private|auth|session|hf|wandb|openai|github)(key|token)"
)
# These say it by themselves: of more words they are a pattern, or a positive weight.
ALONE = re.compile(r"otp|pat|pw")
BEHIND = re.compile(r"value|string|str|data|base64|header")
HARMLESS = {
    "key": re.compile(
        r"answer|audio|batch|best|by|cache|caption|column|config|data|dataset|date|dict|document"
        r"|eval|features?|field|first|foreign|group|hash|hidden|images?|img|index|inputs?"
        r"|instruction|item|join|json|labels?|last|lookup|loss|map|mapping|metrics?|model|module"
        r"|monitor|order|outputs?|partition|primary|prompt|public|query|question|response|reward"
        r"|rng|row|sample|score|shard|sort|state|target|text|time|track|video"
    ),
    "pass": re.compile(
        r"all|back|backward|band|by|each|eval|first|forward|full|high|last|low|max|min|multi|next|num"
        r"|one|per|second|single|test|train|two|warmup"
    ),
    "token": re.compile(
        r"additional|audio|bo[is]|bot|by|class|cls|control|decoder|end|eo[ist]|extra|fim|first"
        r"|forced|image|img|last|mask|max|min|new|next|num|pad|padding|per|placeholder|prefix"
        r"|query|sep|sot|special|start|stop|suffix|think|tool|unk|video|vocab"
    ),
}
# Of a switch, after which something else stands.
SWITCHES = re.compile(r"no|without|disable|skip|has|is|return")
# What is no secret whatever it is called.
PLAIN = re.compile(r"|0|1|true|false|none|null|yes|no|\*\*\*", re.IGNORECASE)

# A password by what it is: those of several over the data have numbers, or such names.
PASS = re.compile(r"--?pass|PASS")
NO_PASS = re.compile(rf"\d{{1,3}}|(?:{HARMLESS['pass'].pattern})", re.IGNORECASE)

OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
NAME = re.compile(r"""[\w.\-+~@/\[\]"':]{1,200}""")
BEFORE = re.compile(
    r"""(?<![\w.])([A-Za-z_][\w.-]{0,100})(\\?["']?\]?[ \t]{0,9}(?:=|:(?!//))[ \t]{0,9})"""
)
PORT = re.compile(r"""\d+(?![^\s"'\\,;&)}\]/])""")
QUOTED = re.compile(r"""(\\?["'])(.*?)\1""", re.DOTALL)
VALUE = re.compile(
    r"""()\\?["']?((?:(?:bearer|basic|token|digest)\s+)?[^\s"'\\,;&)}\]]+)""", re.IGNORECASE
)
USER = re.compile(r"(?<![\w+.-])([a-z][\w+.-]{0,30}://)([^\s/@:?#]*)(:[^\s/]*)?@", re.IGNORECASE)
NO_PASSWORDS = (None, ":", ":x-oauth-basic")
BEARER = re.compile(r"\b(bearer\s)(?=\S{0,200}?[\d._~+/=-]|\S{20})[\w.~+/=-]{6,}", re.IGNORECASE)
# What a signed address of AWS, Google or Azure is signed by.
SIGNED = re.compile(r"([?&](?:sig|signature|x-(?:amz|goog)-signature)=)[^\s&#\"']+", re.IGNORECASE)
# Whoever has these addresses may post there.
WEBHOOK = re.compile(
    r"\b((?:hooks\.slack\.com/(?:services|triggers|workflows)|webhook\.office\.com/webhookb2"
    r"|discord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks)/)[^\s?#\"']+",
    re.IGNORECASE,
)
# Of programs that take a password by an option that is anything elsewhere.
SSHPASS = re.compile(r"""\b(sshpass\s{1,9}-p\s{0,9})(?:"[^"]*"|'[^']*'|[^\s"']+)""")
CURL = re.compile(
    r"""\b(curl\s(?:[^\n|;]{0,200}?\s)?(?:-u\s{0,9}|--user\s{1,9})["']?[^\s:"'/]{1,100}:)[^\s"']+"""
)
# As services give them out: of OpenAI, Hugging Face, GitHub, GitLab, Slack, AWS, Google, npm, PyPI,
# Stripe; JSON Web Tokens.
ISSUED = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{40,}|[rs]k_(?:live|test)_\w{16,}"
    # Within other letters no longer than is quick to look for from each of their places.
    r"|(?:(?<!-)eyJ[\w-]{8,}|eyJ[\w-]{8,400})\.eyJ[\w-]+\.[\w-]+)"
)


def names_secret(name: str) -> bool:
    """Return whether a name says that it is of a key, token, password, secret or credential.

    It goes by whole words: ``--hf-token`` does, ``--tokenizer``, ``--max-tokens`` and
    ``--key-frames`` do not.
    """
    words = [word.lower() for word in WORDS.findall(name)]
    if not words or SWITCHES.fullmatch(words[0]):
        return False
    if any(map(ALWAYS.fullmatch, words)):
        return not ABOUT.fullmatch(words[-1])
    if len(words) > 1 and (BEHIND.fullmatch(words[-1]) or words[-2:] == ["key", "id"]):
        del words[-1]
    if words == ["pass"]:  # one of several over the data
        return False
    if len(words) == 1 and ALONE.fullmatch(words[0]):
        return True
    harmless = HARMLESS.get(words[-1])
    if harmless is not None and len(words) > 1 and harmless.fullmatch(words[-2]):
        return False
    return AT_END.fullmatch(words[-1]) is not None


def masked_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command line, without the secrets among them."""
    found: list[str] = []
    awaiting = ""
    program = ""
    for word in words:
        if awaiting and not OPTION.match(word):
            found.append(HIDDEN if _is_secret(awaiting, word) else word)
            awaiting = ""
            continue
        if program == "sshpass" and word.startswith("-p"):
            found.append(word if word == "-p" else f"-p{HIDDEN}")
            awaiting, program = "--password" if word == "-p" else "", ""
            continue
        if program == "curl" and found[-1] in {"-u", "--user"} and ":" in word:
            found.append(f"{word.partition(':')[0]}:{HIDDEN}")
            continue
        program = _program(program, word)
        name, sign, value = word.partition("=")
        if sign and NAME.fullmatch(name) and _may_be_secret(name):
            found.append(f"{name}={HIDDEN}" if _is_secret(name, value) else word)
            awaiting = ""
            continue
        is_option = OPTION.fullmatch(word) is not None or word.endswith(":")
        awaiting = word if is_option and _may_be_secret(word) else ""
        found.append(masked_text(word))
    return found


def _may_be_secret(name: str) -> bool:
    return PASS.fullmatch(name) is not None or names_secret(name)


def _is_secret(name: str, value: str) -> bool:
    """Return whether the value behind a name of a command line is one."""
    if PASS.fullmatch(name) and NO_PASS.fullmatch(value):
        return False
    return PLAIN.fullmatch(value) is None


def _program(before: str, word: str) -> str:
    """Return the program whose options come behind a word, of those whose options are looked at."""
    name = word.rpartition("/")[2]
    if name in {"sshpass", "curl"}:
        return name
    # What stands behind that of sshpass are options of the program that it starts.
    ends = word in {"|", ";", "&&"} or (before == "sshpass" and not word.startswith("-"))
    return "" if ends else before


def masked_text(text: str, *, pairs: bool = True) -> str:
    """Return a text without its secrets, with `pairs` also what stands behind a name and ``=``."""
    if "@" in text:
        text = USER.sub(_masked_user, text)
    if pairs and ("=" in text or ":" in text):
        text = _masked_pairs(text)
    if "sshpass" in text or "curl" in text:
        text = CURL.sub(rf"\1{HIDDEN}", SSHPASS.sub(rf"\1{HIDDEN}", text))
    if "?" in text or "&" in text:
        text = SIGNED.sub(rf"\1{HIDDEN}", text)
    if "/" in text:
        text = WEBHOOK.sub(rf"\1{HIDDEN}", text)
    return ISSUED.sub(HIDDEN, BEARER.sub(rf"\1{HIDDEN}", text))


def masked_values(value: Any, name: str = "") -> Any:
    """Return settings without the secrets in them; nothing but texts is one."""
    return _masked_values(value, name, is_within=False)


def _masked_values(value: Any, name: str, *, is_within: bool) -> Any:
    if isinstance(value, str):
        is_secret = is_within or names_secret(name)
        if is_secret and not PLAIN.fullmatch(value):
            return HIDDEN
        return masked_text(value, pairs=False)
    if isinstance(value, dict):
        # All of what is called a secret or a credential is one, and not all of a key's settings.
        is_within = is_within or any(map(ALWAYS.fullmatch, WORDS.findall(name.lower())))
        return {
            key: _masked_values(one, str(key), is_within=is_within) for key, one in value.items()
        }
    if isinstance(value, list):
        if value and all(isinstance(one, str) for one in value):
            value = masked_words(value)  # it may be a command line
        return [_masked_values(one, name, is_within=is_within) for one in value]
    return value


def _masked_user(found: re.Match[str]) -> str:
    scheme, user, password = found.groups()
    # A token stands in the place of a user where there is no password, or none that is one.
    if password not in NO_PASSWORDS:
        return f"{scheme}{user}:{HIDDEN}@"
    return f"{scheme}{HIDDEN}@" if scheme.lower().startswith("http") else found[0]


def _masked_pairs(text: str) -> str:
    kept: list[str] = []
    at = kept_to = 0
    while (before := BEFORE.search(text, at)) is not None:
        # What stands within a value may be one, too, as of `url=...?token=...`.
        name, at = before[1], before.end()
        if not names_secret(name):
            continue
        # The port of a host that is called so.
        if before[2] == ":" and PORT.match(text, at):
            continue
        found = QUOTED.match(text, at) or VALUE.match(text, at)
        if found is None or PLAIN.fullmatch(found[2]):
            continue
        kept += [text[kept_to : found.start(2)], HIDDEN]
        at = kept_to = found.end(2)
    return "".join([*kept, text[kept_to:]])
