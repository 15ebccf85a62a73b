"""pyright finds the same types and the same errors in a user's script as mypy."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
with tempfile.TemporaryDirectory() as folder:
    shutil.copy(HERE / "typed_user.py", folder)
    options = {"include": ["typed_user.py"], "extraPaths": [str(HERE.parents[1] / "src")]}
    options |= {"enableTypeIgnoreComments": True, "reportUnnecessaryTypeIgnoreComment": "error"}
    (Path(folder) / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "pyright", "-p", folder, "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
errors = [f"{problem['range']['start']['line'] + 1}: {problem['message']}" for problem in found["generalDiagnostics"]]
assert found["summary"]["filesAnalyzed"] == 1
assert errors == [], "\n".join(errors)
