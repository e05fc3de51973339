"""What the embedded model can do: small tasks in real repositories, through ``aar run``.

    python -m tests.benchmarks.small_tasks                 # the five of the README, three runs each
    python -m tests.benchmarks.small_tasks --all --runs 1  # all of them
    python -m tests.benchmarks.small_tasks off_by_one -v

Each run works in a fresh git repository and is judged by a command that the model does not see unless
the task says ``verify``. Prints a line for each run, and how many succeeded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PYTEST = "python -m pytest -q"


@dataclass(frozen=True)
class Task:
    """A repository, what is asked, and the command that must pass afterwards."""

    name: str
    prompt: str
    files: dict[str, str]
    check: str
    verify: bool = False
    hidden: dict[str, str] = field(default_factory=dict[str, str])
    """Files that are put there only for the check."""


TASKS = [
    Task(
        "fix_operator",
        "The tests fail. Find the bug and fix it.",
        {
            "calc.py": "def add(a, b):\n    return a - b\n\n\ndef multiply(a, b):\n    return a * b\n",
            "test_calc.py": "from calc import add, multiply\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\ndef test_multiply():\n    assert multiply(2, 3) == 6\n",
        },
        PYTEST,
        verify=True,
    ),
    Task(
        "add_function",
        "Add a function `median(values)` to stats.py. It returns the median of a list of numbers; for an even count the mean of the two middle ones; it raises ValueError for an empty list.",
        {"stats.py": '"""Small statistics."""\n\n\ndef mean(values):\n    """Return the mean."""\n    if not values:\n        raise ValueError("no values")\n    return sum(values) / len(values)\n'},
        PYTEST,
        hidden={
            "test_hidden.py": "import pytest\nfrom stats import mean, median\n\n\ndef test_median():\n    assert mean([1, 3]) == 2\n    assert median([3, 1, 2]) == 2\n    assert median([4, 1, 3, 2]) == 2.5\n    with pytest.raises(ValueError):\n        median([])\n"
        },
    ),
    Task(
        "rename",
        "Rename the function `proc` to `process_order` everywhere.",
        {
            "orders.py": "def proc(order):\n    return order['price'] * order['count']\n\n\ndef total(orders):\n    return sum(proc(order) for order in orders)\n",
            "report.py": "from orders import proc\n\n\ndef line(order):\n    return f\"{order['name']}: {proc(order)}\"\n",
            "test_orders.py": "from orders import total\nfrom report import line\n\n\ndef test_total():\n    order = {'name': 'tea', 'price': 2, 'count': 3}\n    assert total([order]) == 6\n    assert line(order) == 'tea: 6'\n",
        },
        "python -m pytest -q && python -c \"import orders, report; orders.process_order; assert not hasattr(orders, 'proc')\"",
    ),
    Task(
        "off_by_one",
        "`last_page` returns one page too many when the items fill the last page exactly. Fix it.",
        {
            "paging.py": "def last_page(items, size):\n    \"\"\"Return the number of the last page, counting from 1.\"\"\"\n    return items // size + 1\n\n\ndef page(items, number, size):\n    start = (number - 1) * size\n    return items[start : start + size]\n",
            "test_paging.py": "from paging import last_page, page\n\n\ndef test_last_page():\n    assert last_page(10, 3) == 4\n    assert last_page(9, 3) == 3\n    assert last_page(1, 3) == 1\n\n\ndef test_page():\n    assert page([1, 2, 3, 4], 2, 3) == [4]\n",
        },
        PYTEST,
        verify=True,
    ),
    Task(
        "write_file",
        "Write a file greet.py with a function `greet(name)` that returns 'Hello, NAME!' with the given name.",
        {"README.md": "# Greetings\n"},
        "python -c \"from greet import greet; assert greet('Ada') == 'Hello, Ada!'\"",
    ),
    Task(
        "import_error",
        "Running main.py fails. Make it work.",
        {
            "main.py": "from utils.textt import shout\n\nprint(shout('hello'))\n",
            "utils/__init__.py": "",
            "utils/text.py": "def shout(text):\n    return text.upper() + '!'\n",
        },
        'test "$(python main.py)" = "HELLO!"',
    ),
    Task(
        "default_argument",
        "Give `connect` in client.py an optional argument `timeout` with default 30, and pass it on to `Session`.",
        {
            "client.py": "class Session:\n    def __init__(self, host, timeout=5):\n        self.host = host\n        self.timeout = timeout\n\n\ndef connect(host):\n    return Session(host)\n",
        },
        "python -c \"from client import connect; assert connect('a').timeout == 30; assert connect('a', timeout=7).timeout == 7; assert connect('b').host == 'b'\"",
    ),
    Task(
        "empty_list",
        "average() crashes for an empty list. It should return 0.0 then.",
        {
            "src/metrics.py": "def average(values):\n    return sum(values) / len(values)\n\n\ndef spread(values):\n    return max(values) - min(values)\n",
            "src/__init__.py": "",
            "tests/test_metrics.py": "from src.metrics import average, spread\n\n\ndef test_average():\n    assert average([1, 2]) == 1.5\n\n\ndef test_spread():\n    assert spread([1, 4]) == 3\n",
        },
        "python -m pytest -q && python -c \"from src.metrics import average; assert average([]) == 0.0\"",
    ),
    Task(
        "syntax_error",
        "shapes.py does not even import. Repair it.",
        {
            "shapes.py": "import math\n\n\ndef area_circle(radius)\n    return math.pi * radius ** 2\n\n\ndef area_square(side):\n    return side ** 2\n",
        },
        "python -c \"import shapes; assert round(shapes.area_circle(1), 2) == 3.14; assert shapes.area_square(3) == 9\"",
    ),
    Task(
        "json_config",
        "Set \"debug\" to false and \"port\" to 8080 in config.json.",
        {"config.json": '{\n  "name": "shop",\n  "debug": true,\n  "port": 3000,\n  "tags": ["a", "b"]\n}\n', "app.py": "import json\n\nprint(json.load(open('config.json'))['name'])\n"},
        "python -c \"import json; assert json.load(open('config.json')) == {'name': 'shop', 'debug': False, 'port': 8080, 'tags': ['a', 'b']}\"",
    ),
    Task(
        "write_test",
        "Write tests for slugify in test_text.py (pytest).",
        {
            "text.py": "import re\n\n\ndef slugify(title):\n    \"\"\"Return the title in lower case, with every run of other characters than a-z and 0-9 as one dash.\"\"\"\n    return re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')\n",
        },
        "python -m pytest -q test_text.py",
    ),
    Task(
        "fizzbuzz",
        "Implement fizzbuzz in fizz.py as its docstring says.",
        {
            "fizz.py": "def fizzbuzz(n):\n    \"\"\"Return a list of strings for 1 to n: 'Fizz' for multiples of 3, 'Buzz' for multiples of 5,\n    'FizzBuzz' for multiples of both, else the number.\n    \"\"\"\n    raise NotImplementedError\n",
            "test_fizz.py": "from fizz import fizzbuzz\n\n\ndef test_fizz():\n    assert fizzbuzz(5) == ['1', '2', 'Fizz', '4', 'Buzz']\n    assert fizzbuzz(15)[-1] == 'FizzBuzz'\n",
        },
        PYTEST,
    ),
    Task(
        "class_method",
        "Add a method `withdraw(amount)` to Account that lowers the balance and raises ValueError when there is not enough money.",
        {
            "bank/__init__.py": "",
            "bank/account.py": "class Account:\n    def __init__(self, owner, balance=0):\n        self.owner = owner\n        self.balance = balance\n\n    def deposit(self, amount):\n        if amount <= 0:\n            raise ValueError('amount must be positive')\n        self.balance += amount\n",
            "bank/ledger.py": "from bank.account import Account\n\n\ndef open_accounts(names):\n    return {name: Account(name) for name in names}\n",
        },
        "python -c \"\nfrom bank.account import Account\na = Account('x', 10)\na.withdraw(4)\nassert a.balance == 6\na.deposit(1)\nassert a.balance == 7\ntry:\n    a.withdraw(100)\nexcept ValueError:\n    pass\nelse:\n    raise SystemExit(1)\n\"",
    ),
    Task(
        "wrong_condition",
        "is_leap is wrong for 1900. Fix it.",
        {
            "dates.py": "def is_leap(year):\n    return year % 4 == 0\n\n\ndef days_in_year(year):\n    return 366 if is_leap(year) else 365\n",
            "test_dates.py": "from dates import days_in_year, is_leap\n\n\ndef test_leap():\n    assert is_leap(2000)\n    assert is_leap(2024)\n    assert not is_leap(1900)\n    assert not is_leap(2023)\n    assert days_in_year(1900) == 365\n",
        },
        PYTEST,
        verify=True,
    ),
    Task(
        "constant",
        "Change the maximum number of retries from 3 to 5.",
        {
            "settings.py": "HOST = 'localhost'\nPORT = 8000\nMAX_RETRIES = 3\nTIMEOUT = 30\n",
            "worker.py": "from settings import MAX_RETRIES\n\n\ndef attempts():\n    return list(range(MAX_RETRIES))\n",
        },
        "python -c \"import settings, worker; assert settings.MAX_RETRIES == 5 and len(worker.attempts()) == 5 and settings.PORT == 8000\"",
    ),
    Task(
        "two_files",
        "Orders need a discount: add a parameter `discount=0` (a fraction such as 0.1) to `price` in pricing.py, and let `receipt` in receipt.py take `discount=0` as well and use it.",
        {
            "pricing.py": "def price(count, unit):\n    return count * unit\n",
            "receipt.py": "from pricing import price\n\n\ndef receipt(count, unit):\n    return f'Total: {price(count, unit):.2f}'\n",
        },
        "python -c \"from pricing import price; from receipt import receipt; assert price(2, 5) == 10; assert abs(price(2, 5, discount=0.1) - 9) < 1e-9; assert receipt(2, 5) == 'Total: 10.00'; assert receipt(2, 5, discount=0.5) == 'Total: 5.00'\"",
    ),
    Task(
        "javascript",
        "sum() ignores the last number. Fix it.",
        {
            "sum.js": "function sum(numbers) {\n  let total = 0;\n  for (let i = 0; i < numbers.length - 1; i++) {\n    total += numbers[i];\n  }\n  return total;\n}\n\nmodule.exports = { sum };\n",
            "test.js": "const { sum } = require('./sum');\nif (sum([1, 2, 3]) !== 6) { console.error('wrong sum'); process.exit(1); }\n",
        },
        "node test.js",
    ),
    Task(
        "many_files",
        "The function that turns a temperature from Celsius to Fahrenheit gives wrong results. Fix it.",
        {
            **{f"app/module_{i}.py": f"def helper_{i}(x):\n    return x + {i}\n" for i in range(12)},
            "app/__init__.py": "",
            "app/weather.py": "def celsius_to_fahrenheit(degrees):\n    return degrees * 5 / 9 + 32\n\n\ndef describe(degrees):\n    return f'{celsius_to_fahrenheit(degrees):.0f} F'\n",
            "tests/test_weather.py": "from app.weather import celsius_to_fahrenheit, describe\n\n\ndef test_weather():\n    assert celsius_to_fahrenheit(100) == 212\n    assert describe(0) == '32 F'\n",
        },
        PYTEST,
    ),
    Task(
        "docs",
        "Add a section 'Installation' to README.md that says: pip install shop",
        {"README.md": "# Shop\n\nA small shop.\n\n## Usage\n\nRun `shop`.\n", "shop.py": "print('shop')\n"},
        "grep -q '^## Installation' README.md && grep -q 'pip install shop' README.md && grep -q '## Usage' README.md && grep -q 'A small shop.' README.md",
    ),
    Task(
        "command_line",
        "Make wc.py print the number of words of the file whose name is given as the first argument.",
        {"wc.py": "import sys\n\n\ndef main():\n    pass\n\n\nif __name__ == '__main__':\n    main()\n", "sample.txt": "one two three\nfour\n"},
        'test "$(python wc.py sample.txt)" = 4',
    ),
]  # fmt: skip

FIRST_FIVE = ("fix_operator", "add_function", "rename", "off_by_one", "write_file")


@dataclass(frozen=True)
class Outcome:
    """How one run went."""

    passed: bool
    seconds: float
    exit_code: int
    steps: int
    tools: list[str]
    detail: str


def acts_of(events: list[dict[str, Any]]) -> list[str]:
    """Return what a run did, a line for each call, check and last word."""
    acts: list[str] = []
    for event in events:
        match event["type"]:
            case "tool_call":
                acts.append(f"> {event['tool_name']} {json.dumps(event['arguments'], ensure_ascii=False)}")
            case "tool_result":
                first = " | ".join(
                    event["output"].strip().splitlines()[:3] + event["output"].strip().splitlines()[-1:]
                )
                acts.append(f"  = {'ERROR ' if event['is_error'] else ''}{first[:300]}")
            case "assistant_message":
                acts.append(f". {event['content'].strip()[:500]}")
            case "context" if event["source"] in ("verify", "nudge"):
                acts.append(f"! {event['label']}: {event['content'][0]['text'][:200]}")
            case _:
                pass
    return acts


def show_files(root: Path) -> None:
    """Print the files that a run left."""
    for path in sorted(root.rglob("*")):
        hidden = any(part.startswith((".", "__")) for part in path.relative_to(root).parts)
        if path.is_file() and not hidden:
            print(f"--- {path.relative_to(root)}\n{path.read_text(errors='replace')}")


def run_task(
    task: Task, *, model: str, aar: list[str], settings: Sequence[str] = (), verbose: bool = False
) -> Outcome:
    """Do ``task`` once in a fresh repository."""
    with tempfile.TemporaryDirectory(prefix=f"aar-{task.name}-") as folder:
        root = Path(folder)
        for name, text in task.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        subprocess.run(["git", "init", "-q", folder], check=True)
        argv = [*aar, "run", task.prompt, "--model", model, "--output", "stream-json"]
        argv += ["--max-steps", "8", *(word for setting in settings for word in ("--set", setting))]
        if task.verify:
            argv += ["--verify", task.check]
        start = time.monotonic()
        done = subprocess.run(
            argv, cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600
        )
        seconds = time.monotonic() - start
        for name, text in task.hidden.items():
            (root / name).write_text(text)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        check = subprocess.run(
            task.check, shell=True, cwd=root, capture_output=True, text=True, env=environment
        )
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        result = events.pop() if events and events[-1]["type"] == "result" else {}
        passed = check.returncode == 0 and (not task.verify or result.get("stop_reason") == "verified")
        detail = f"{result.get('stop_reason')} {done.stderr.strip()[-300:]} {check.stdout[-300:]}"
        tools = [event["tool_name"] for event in events if event["type"] == "tool_call"]
        if verbose:
            print("\n".join(acts_of(events)))
            if not passed:
                show_files(root)
                print(json.dumps(result, indent=1)[:3000], check.stdout[-2000:], check.stderr[-2000:])
        return Outcome(passed, seconds, done.returncode, int(result.get("steps", 0)), tools, detail)


def main() -> None:
    """Run the chosen tasks and print how they went."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--dialect", choices=("native", "text", "files"))
    parser.add_argument("--aar", default=f"{sys.executable} -m aar")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    names = options.names or ([task.name for task in TASKS] if options.all else FIRST_FIVE)
    settings = [f"model.dialect={options.dialect}"] if options.dialect else []
    passed = total = 0
    for task in (task for task in TASKS if task.name in names):
        for _ in range(options.runs):
            outcome = run_task(
                task,
                model=options.model,
                aar=options.aar.split(),
                settings=settings,
                verbose=options.verbose,
            )
            total += 1
            passed += outcome.passed
            mark = "ok  " if outcome.passed else "FAIL"
            why = "" if outcome.passed else f"  {outcome.detail}"
            print(
                f"{mark} {task.name:18} {outcome.seconds:6.1f} s  exit {outcome.exit_code}  {outcome.steps} steps  {' '.join(outcome.tools)}{why}",
                flush=True,
            )
    print(f"{passed} of {total} runs succeeded")


if __name__ == "__main__":
    main()
