"""What the interpreter of the environment `litert` runs, without edgekit: a file's `answer` to one question.

Arguments: the file; a JSON object, which its `answer` gets; and the path of the JSON object that says how it ended: by
"answer", with what `answer` returned, or by "error", with the first line of what went wrong.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Answer."""
    file, request, response = sys.argv[1:]
    try:
        ended = {"answer": runpy.run_path(file)["answer"](json.loads(request))}
    except Exception as error:  # whatever its library met: the parent says it in a sentence
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        ended = {"error": lines[0] if lines else type(error).__name__}
    Path(response).write_text(json.dumps(ended))


if __name__ == "__main__":
    main()
