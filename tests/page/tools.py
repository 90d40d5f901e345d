"""Runs the tools that check the page's JavaScript, with what the Makefile has installed into `.venv/page`.

    python tests/page/tools.py format | format-check | types | test

If nothing is installed there, it says so and ends with 0. The tests need only Node.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_PAGE = _ROOT / "core_sdk" / "_interfaces" / "server" / "page"
_INSTALLED = Path(sys.prefix) / "page"
_PACKAGES = _INSTALLED / "node_modules"


def main(command: str) -> int:
    if command != "test" and not (_INSTALLED / ".installed").exists():
        print(f"the page is NOT CHECKED: no npm packages; see {_INSTALLED / 'install.log'}", file=sys.stderr)
        return 0
    match command:
        case "format":
            return _prettier("--write")
        case "format-check":
            return _prettier("--check")
        case "types":
            return _types()
        case "test":
            # A channel to other tabs, which the page opens as it is loaded, would keep the process alive.
            return _node("--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "--test", "--test-force-exit", *_tests())
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def _prettier(option: str) -> int:
    files = [path for path in sorted(_PAGE.rglob("*.js")) if "vendor" not in path.parts]
    script = _PACKAGES / "prettier" / "bin" / "prettier.cjs"
    return _node(script, "--log-level=warn", f"--config={_HERE / 'prettier.json'}", option, *files, *_tests())


def _types() -> int:
    from page.api_types import api_types  # the server, which the other tools do not need

    (_INSTALLED / "api.d.ts").write_text(api_types())
    return _node(_PACKAGES / "typescript" / "bin" / "tsc", "--project", _HERE / "tsconfig.json")


def _tests() -> list[Path]:
    return sorted(_HERE.glob("*.test.js"))


def _node(*arguments: str | Path) -> int:
    from npm_packages import NODE  # a wheel, which is there if the packages are

    return subprocess.run([NODE, *arguments], cwd=_ROOT).returncode


if __name__ == "__main__":
    sys.path.insert(0, str(_HERE.parent))
    sys.exit(main(*sys.argv[1:2] or [""]))
