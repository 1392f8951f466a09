"""Known vulnerabilities of the packages in requirements.lock. Exits with status 3 if no source could be
asked, which does not mean "none".

pip-audit also reports "none" for packages that its source of advisories does not know, as when it is offline.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_ASKED = 3


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "-r", "requirements.lock", "--disable-pip", "--require-hashes"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"NOBODY WAS ASKED about known weaknesses: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}")
        return NOT_ASKED
    unknown = [one["name"] for one in packages if "skip_reason" in one]
    weak = [(one["name"], one["version"], each["id"]) for one in packages for each in one.get("vulns", ())]
    for name, version, id in weak:
        print(f"{name} {version}: {id}")
    if weak:
        return 1
    if unknown or not packages:
        print(f"NOBODY KNEW {len(unknown)} of {len(packages)} packages, as {', '.join(unknown[:3])}.")
        return NOT_ASKED
    print(f"{len(packages)} packages, none with a known weakness")
    return 0


if __name__ == "__main__":
    sys.exit(main())
