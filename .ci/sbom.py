"""A bill of materials in CycloneDX: every package of requirements.lock with its version and hashes.

`python .ci/sbom.py [file]` writes it, or prints it without a file. The same lock file gives the same document.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def main() -> int:
    components = read((ROOT / "requirements.lock").read_text())
    unverified = [one["name"] for one in components if not one["hashes"]]
    if unverified or not components:
        print(f"requirements.lock has no hashes for: {', '.join(unverified) or 'anything'}")
        return 1
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    text = json.dumps(document, indent=1) + "\n"
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(text)
        print(f"{len(components)} packages, each with its hashes")
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


if __name__ == "__main__":
    sys.exit(main())
