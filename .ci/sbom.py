"""A bill of materials in CycloneDX: every package of requirements.lock with its version and hashes, and what of others
stands in static/.

`python .ci/sbom.py [file]` writes it, or prints it without a file. The same lock file gives the same document.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")
VENDORED = ROOT / "static" / "console"
VERSION = re.compile(r"-(\d+(?:\.\d+)+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def main() -> int:
    components = read((ROOT / "requirements.lock").read_text())
    unverified = [one["name"] for one in components if not one["hashes"]]
    if unverified or not components:
        print(f"requirements.lock has no hashes for: {', '.join(unverified) or 'anything'}")
        return 1
    components += vendored()
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    text = json.dumps(document, indent=1) + "\n"
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(text)
        print(f"{len(components)} packages and files, each with its hashes")
    else:
        print(text, end="")
    return 0


def read(lock: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    hashes: list[dict[str, str]] = []
    for line in lock.splitlines():
        if package := PACKAGE.match(line):
            name, version = package[1].lower(), package[2]
            purl, hashes = f"pkg:pypi/{name}@{version}", []
            found.append({
                "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": hashes
            })  # fmt: skip
        hashes += [{"alg": "SHA-256", "content": one} for one in HASH.findall(line)]
    return found


def vendored() -> list[dict[str, object]]:
    """The script and the fonts of others, as they are here. The name of a font's file has no version."""
    files = sorted([*(VENDORED / "vendor").glob("*.js"), *(VENDORED / "fonts").glob("*.woff2")])
    found: list[dict[str, object]] = []
    for file in files:
        version = VERSION.search(file.name)
        found.append({
            "type": "file", "bom-ref": f"file:{file.relative_to(ROOT)}", "name": str(file.relative_to(ROOT)),
            **({"version": version[1]} if version else {}),
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}],
        })  # fmt: skip
    return found


if __name__ == "__main__":
    sys.exit(main())
