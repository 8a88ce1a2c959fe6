"""The schema of the settings takes what the settings take: values at random, right and wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from dftrace_ai.config import Config
from dftrace_ai.config.model import SETTINGS
from dftrace_ai.errors import ConfigError

SCHEMA = Path(__file__).parents[2] / "schemas" / "config.schema.json"

WORDS = (
    "true t yes y on 1 false f no n off 0 none null all -data a,b warn usr1 SIGUSR2 SIGKILL sigint "
    "DEBUG 640 0640 0o640 0777 0700 0600 10:20 :5 5: : :0 3 12 5.0 1.5 zstd gzip epoch_us drop "
    "forward dp=0,pp=1 dp=0,dp=1 dp=x out/trace out/ a.pfw.gz .pfw.gz ~/t .. / True"
).split()
WORDS += [
    " ",
    "",
    "dp = 01",
    " gzip ",
    *(word for field in SETTINGS.values() for word in field.words),
]
ENDS = [end for field in SETTINGS.values() for end in (field.least, field.most) if end is not None]
NUMBERS = [end + one for end in sorted(set(ENDS)) for one in (-1, -0.001, 0, 0.001, 1)]
NUMBERS += [0, 2, 0.5, 1.5, 3.0, -1, 100, 0o640, 0o777]
ODD: list[Any] = [
    *(None, True, False, [], ["forward", "backward"], ["a"], [1], [["a"]], {}),
    *({"dp": 0, "pp": 1}, {"dp": "x"}, {"dp": -1}, {"a b": 1}, {"dp": 1.5}, {"dp": "3"}),
]


def test_the_schema_takes_what_the_settings_take() -> None:
    schema = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    choose, taken = random.Random(29), 0
    written = [f"{number:.6f}" if isinstance(number, float) else f"{number}" for number in NUMBERS]
    for _ in range(2_000):
        given = {}
        for name in choose.sample(sorted(SETTINGS), choose.choice([1, 1, 2, 3])):
            field = SETTINGS[name]
            if choose.random() < 0.5:
                given[name] = choose.choice(choose.choice([WORDS, NUMBERS, ODD, written]))
            else:
                given[name] = choose.choice(
                    [*field.words, "x" if field.kind is Path else field.default]
                )
        try:
            Config(**given)
            fault = ""
        except ConfigError as error:
            fault = str(error)
        taken += not fault
        # An order between two values cannot be said.
        if "does not exist in a world_size" not in fault:
            assert schema.is_valid(given) == (not fault), (given, fault)
    assert taken > 400
